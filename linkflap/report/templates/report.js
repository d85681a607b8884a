(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const NS = "http://www.w3.org/2000/svg";
  const state = { view: [0, data.length], time: null, offsets: null, group: 0, range: null };
  const css = (name) => `var(${name})`;
  const clusterColor = (name) => css(`--c${Math.max(0, data.clusters.indexOf(name)) % 6}`);
  const clamp = (v, a, b) => Math.min(b, Math.max(a, v));
  const number = (n) => n.toLocaleString("en-US");
  const seconds = (t) => `${t.toFixed(t < 10 ? 3 : 2)} s`;

  // Text from a run is only ever set as text: nothing here parses markup.
  const make = (name, attributes = {}, parent = null, text = null) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  };
  const html = (name, text = "", className = "") => {
    const node = document.createElement(name);
    node.textContent = text;
    if (className) node.className = className;
    return node;
  };
  const say = (id, text) => { document.getElementById(id).textContent = text; };
  const short = (n) => (n >= 1e6 ? `${+(n / 1e6).toFixed(1)}M` : n >= 1e3 ? `${+(n / 1e3).toFixed(1)}k` : `${+n.toFixed(n < 10 ? 1 : 0)}`);

  const ticks = (from, to, most) => {
    const raw = (to - from) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw || 1));
    const steps = [1, 2, 5, 10].map((m) => m * power), wide = steps.find((s) => s >= raw) || power;
    const step = wide <= to - from ? wide : steps.findLast((s) => s <= to - from) || wide; // an axis has more than its zero
    const found = [];
    for (let t = Math.ceil(from / step) * step; t <= to + step * 1e-9; t += step) found.push(+t.toFixed(9));
    return found;
  };

  /* An area that is dragged over: `done(from, to)` with pixels within [left, right], or `done(null)` after a click. */
  const brush = (svg, left, right, done, moved) => {
    let start = null;
    const at = (event) => clamp(event.clientX - svg.getBoundingClientRect().left, left, right);
    svg.addEventListener("pointerdown", (event) => {
      if (event.button || event.target.closest("a")) return;
      start = at(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => moved(at(event), start));
    svg.addEventListener("pointercancel", () => { start = null; });
    svg.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const [a, b] = [start, at(event)].sort((x, y) => x - y);
      start = null;
      done(b - a < 4 ? null : a, b);
    });
  };

  const unfold = (target) => {
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  };
  const goTo = (event, anomaly) => {
    const target = document.getElementById(`a-${anomaly.n}`);
    if (!target) return;
    unfold(target);
    if (event) event.preventDefault();
    location.hash = `a-${anomaly.n}`;
    target.scrollIntoView({ block: "center" });
  };

  const anomalyMark = (parent, x, y, anomaly) => {
    const link = make("a", { href: `#a-${anomaly.n}`, "aria-label": `anomaly ${anomaly.n}: ${anomaly.kind}` }, parent);
    make("path", { d: `M${x} ${y + 5}l-5 -9h10z`, class: anomaly.allowed ? "svg-allowed" : "svg-anomaly" }, link);
    make("title", {}, link, `${anomaly.n}. ${anomaly.sentence || anomaly.kind}`);
    link.addEventListener("click", (event) => { show(anomaly); goTo(event, anomaly); });
  };

  /* ---------- timeline ---------- */
  const timeline = () => {
    const box = document.getElementById("timeline-chart");
    if (!box) return;
    box.replaceChildren();
    const W = Math.max(280, box.clientWidth), phone = W < 560, left = phone ? 50 : 96, right = W - 8;
    const [t0, t1] = state.view, x = (t) => left + ((t - t0) / (t1 - t0 || 1)) * (right - left), inverse = (px) => t0 + ((px - left) / (right - left)) * (t1 - t0);
    const panels = data.panels.filter((panel) => Object.keys(panel.lines).length);
    const labels = data.windows.map((w, i) => (phone ? `${i + 1}` : w.label)); // on a phone numbers, which a legend explains
    // A fault's name is written in its bar, else behind it, else, where the drawing ends, in front of it.
    const nameOf = (w, i) => {
      const from = clamp(x(w.start), left, right), to = w.lasting ? from + 6 : clamp(Math.max(x(w.start) + 2, x(w.end)), left, right), across = labels[i].length * 5.9;
      const inside = !w.lasting && to - from >= across + 8, before = !inside && to + across > right && from - across > left;
      return { at: inside ? from + 5 : before ? from - 4 : to + 4, before, from: before ? from - across - 8 : from, until: inside || before ? to : to + across + 8 };
    };
    const free = [], lanes = data.windows.map((w, i) => {
      const name = nameOf(w, i);
      let lane = free.findIndex((end) => end <= name.from);
      if (lane < 0) lane = free.length < 8 ? free.push(0) - 1 : 7;
      free[lane] = name.until + 6;
      return lane;
    });
    const faultTop = 4, faultRows = Math.max(1, free.length), anomalyY = faultTop + faultRows * 17 + 10;
    const height = phone ? 62 : 74, gap = 22, first = anomalyY + 20;
    const clients = data.clients, rowHeight = 13, swimTop = first + panels.length * (height + gap) + 8;
    const H = swimTop + (clients.length ? clients.length * rowHeight + 8 : 0) + 26;
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, height: H, role: "img", "aria-label": "timeline of the run" }, box);
    const bottom = H - 22;
    data.windows.forEach((w, i) => {
      const a = x(w.start), b = w.lasting ? a + 6 : Math.max(a + 2, x(w.end));
      if (b < left || a > right) return;
      const from = clamp(a, left, right), to = clamp(b, left, right);
      if (!w.lasting) make("rect", { x: from, y: first - 6, width: Math.max(1, to - from), height: bottom - first + 6, fill: css("--fault"), opacity: w.bit === false ? 0.05 : 0.11 }, svg);
      const y = faultTop + lanes[i] * 17, g = make("g", {}, svg);
      make("rect", { x: from, y: y + 1, width: Math.max(3, to - from), height: 13, rx: 2, fill: css("--fault"), opacity: w.bit === false ? 0.25 : 0.6 }, g);
      // The bar of a fault that lasts has no end for a tick to stand at: its title says when it was seen to be healed.
      for (const [t, name] of [[w.bite, "bite"], [w.heal, "heal"]]) {
        if (t !== null && t >= t0 && t <= t1 && (!w.lasting || x(t) <= b)) make("line", { x1: x(t), x2: x(t), y1: y, y2: y + 15, stroke: css(name === "bite" ? "--invalid" : "--valid"), "stroke-width": 2 }, g);
      }
      const name = nameOf(w, i);
      make("text", { x: name.at, y: y + 11.5, "text-anchor": name.before ? "end" : "start" }, g, labels[i]);
      make("title", {}, g, w.title);
    });
    document.getElementById("timeline-faults").replaceChildren(...(phone ? data.windows : []).map((w, i) => html("span", `${i + 1} ${w.label}, from ${seconds(w.start)} ${w.lasting ? "for good" : `to ${seconds(w.end)}`}`)));
    const marks = data.marks.filter((m) => m.at >= t0 && m.at <= t1);
    let said = -99;
    marks.forEach((m) => {
      const big = m.kind === "failover" || m.kind === "promotion";
      const g = make("g", {}, svg);
      make("line", { x1: x(m.at), x2: x(m.at), y1: first - 8, y2: bottom, stroke: css(big ? "--invalid" : "--faint"), "stroke-width": big ? 1.2 : 0.8, "stroke-dasharray": big ? "4 3" : "2 3" }, g);
      if (x(m.at) - said > 9) { make("circle", { cx: x(m.at), cy: first - 9, r: 3.2, fill: css(big ? "--invalid" : "--faint") }, g); said = x(m.at); }
      make("title", {}, g, `${seconds(m.at)} ${m.label}`);
    });
    panels.forEach((panel, i) => {
      const top = first + i * (height + gap), base = top + height;
      let most = 0;
      for (const values of Object.values(panel.lines)) values.forEach((v, k) => { if (v !== null && data.at[k] >= t0 && data.at[k] <= t1) most = Math.max(most, v); });
      most = most * 1.08 || 1;
      const y = (v) => base - (v / most) * (height - 4);
      for (const v of ticks(0, most, 2)) {
        make("line", { x1: left, x2: right, y1: y(v), y2: y(v), stroke: css("--grid") }, svg);
        make("text", { x: left - 5, y: y(v) + 4, "text-anchor": "end", class: "dim" }, svg, short(v));
      }
      make("text", { x: left, y: top - 4, class: "dim" }, svg, phone ? panel.short : panel.title);
      let across = right;
      Object.entries(panel.lines).forEach(([name, values]) => {
        const color = css(panel.colors[name] || "--c0");
        let d = "", up = false;
        values.forEach((v, k) => {
          const px = x(data.at[k]);
          if (v === null || px < left - 1 || px > right + 1) { up = false; return; }
          d += `${up ? "L" : "M"}${px.toFixed(1)} ${y(v).toFixed(1)}${up ? "" : "h0.1"}`; // one that stands alone is a dot
          up = true;
        });
        make("path", { d: d || "M0 0", fill: "none", stroke: color, "stroke-width": 1.5, "stroke-linejoin": "round", "stroke-linecap": "round" }, svg);
        across -= name.length * 6.2 + 20;
        make("line", { x1: across, x2: across + 11, y1: top - 8, y2: top - 8, stroke: color, "stroke-width": 3 }, svg);
        make("text", { x: across + 14, y: top - 4 }, svg, name);
      });
    });
    if (clients.length) {
      make("text", { x: left, y: swimTop - 3, class: "dim" }, svg, phone ? "operations of each client" : "operations of each client: ok, fail (red), outcome unknown (amber)");
      const o = data.operations, near = t1 - t0 < data.length * 0.6 || o.start.length < 1500;
      // Where operations are left out, what is not drawn one by one is still shown by its bin.
      const strips = !near || data.operations_left_out > 0 || o.start.length > 4000;
      clients.forEach((name, row) => {
        const y = swimTop + 2 + row * rowHeight, strip = data.strips[row], width = data.length / strip.length;
        if (strips) for (let k = 0; k < strip.length; k++) {
          if (strip[k] === "." || (k + 1) * width < t0 || k * width > t1) continue;
          const from = clamp(x(k * width), left, right), to = clamp(x((k + 1) * width), left, right);
          make("rect", { x: from, y, width: Math.max(1, to - from), height: rowHeight - 3, fill: css({ o: "--ok", f: "--fail", i: "--info" }[strip[k]]), opacity: (strip[k] === "o" ? 0.45 : 1) * (near ? 0.5 : 1) }, svg);
        }
        const most = phone ? 8 : 15;
        make("text", { x: left - 5, y: y + 9, "text-anchor": "end", class: "dim", style: `font-size:${phone ? 9 : 10.5}px` }, svg, name.length > most ? `${name.slice(0, 4)}…${name.slice(-3)}` : name);
      });
      if (near) {
        let drawn = 0;
        const edge = new Map();
        for (let k = 0; k < o.start.length && drawn < 4000; k++) {
          const a = o.start[k] / 1000, b = a + o.took[k] / 1000;
          if (b < t0 || a > t1) continue;
          const from = clamp(x(a), left, right), to = clamp(x(b), left, right), outcome = "ofi"[o.outcome[k]];
          const key = `${o.client[k]}${outcome}`;
          if (to < (edge.get(key) || -1)) continue; // hidden behind the one before it
          edge.set(key, to);
          make("rect", { x: from, y: swimTop + 2 + o.client[k] * rowHeight, width: Math.max(1, to - from), height: rowHeight - 3, fill: css({ o: "--ok", f: "--fail", i: "--info" }[outcome]), opacity: outcome === "o" ? 0.55 : 1, "data-op": k }, svg);
          drawn++;
        }
      }
    }
    for (const t of ticks(t0, t1, phone ? 4 : 10)) make("text", { x: x(t), y: H - 6, "text-anchor": "middle", class: "dim" }, svg, `${t} s`);
    let last = -99;
    data.anomalies.filter((a) => a.at !== null && a.at >= t0 && a.at <= t1).sort((a, b) => a.at - b.at).forEach((a) => {
      if (x(a.at) - last < 3 && !a.first) return;
      last = x(a.at);
      anomalyMark(svg, x(a.at), anomalyY, a);
    });
    if (state.time) {
      const [a, b] = state.time.map((t) => clamp(x(t), left, right));
      make("rect", { x: a, y: first - 12, width: Math.max(1.5, b - a), height: bottom - first + 12, fill: css("--select"), opacity: 0.16, "pointer-events": "none" }, svg);
    }
    const live = make("rect", { y: first - 12, height: bottom - first + 12, width: 0, x: 0, fill: css("--select"), opacity: 0.2, "pointer-events": "none" }, svg);
    brush(svg, left, right, (a, b) => {
      select(a === null ? null : [inverse(a), inverse(b)]);
    }, (px, start) => {
      if (start !== null) { live.setAttribute("x", Math.min(px, start)); live.setAttribute("width", Math.abs(px - start)); }
      const t = inverse(px), near = marks.filter((m) => Math.abs(x(m.at) - px) < 5).map((m) => m.label);
      const on = data.windows.filter((w) => t >= w.start && t <= w.end && !w.lasting).map((w) => w.title);
      say("timeline-readout", [seconds(t), ...near, ...on].join(" · "));
    });
  };

  /* ---------- offset lanes ---------- */
  const groups = [];
  data.lanes.forEach((lane) => {
    let group = groups.find((g) => g.topic === lane.topic && g.partition === lane.partition);
    if (!group) groups.push((group = { topic: lane.topic, partition: lane.partition, lanes: [] }));
    group.lanes.push(lane);
  });
  const producerColor = (label) => {
    const order = data.producers.indexOf(label);
    return label === "" ? css("--faint") : `hsl(${Math.round((order < 0 ? 7 : order) * 137.5 + 205) % 360} var(--batch-s) var(--batch-l))`;
  };
  const everything = (group) => [Math.min(...group.lanes.map((l) => l.start)), Math.max(...group.lanes.map((l) => l.end), 1)];
  const inSelection = (time) => !state.time || (time / 1000 >= state.time[0] && time / 1000 <= state.time[1]);
  // Batches, or where they are counted only, bins: [from, to) in offsets, first and last time in milliseconds, records.
  const pieces = (lane) => {
    if (lane.pieces) return lane.pieces;
    if (!lane.bins) return (lane.pieces = lane.base.map((base, k) => [base, base + lane.count[k], lane.time[k], lane.time[k], lane.count[k]]));
    const width = (lane.end - lane.start) / lane.bins.records.length;
    let before = null;
    return (lane.pieces = lane.bins.records.flatMap((count, k) => {
      if (!count) return [];
      const time = lane.bins.time[k], from = before ?? time;
      before = time;
      return [[lane.start + k * width, lane.start + (k + 1) * width, Math.min(from, time), time, count]];
    }));
  };
  // Offsets whose batches are drawn one by one: what is missing there is missing in the log.
  const drawnOf = (lane) => {
    if (lane.drawn) return lane.drawn;
    let first = 0;
    return (lane.drawn = lane.gaps.concat(lane.base.length - 1).flatMap((last) => {
      if (last < first) return [];
      const found = [lane.base[first], lane.base[last] + lane.count[last]];
      first = last + 1;
      return [found];
    }));
  };
  const outside = (spans, from, to) => {
    const found = [];
    for (const [a, b] of spans) {
      if (b <= from || a >= to) continue;
      if (a > from) found.push([from, a]);
      from = b;
    }
    return from < to ? [...found, [from, to]] : found;
  };
  const sampled = (lane, t) => {
    let found = null;
    for (let k = 0; k < lane.samples.at.length && lane.samples.at[k] <= t; k++) found = k;
    return found === null ? null : [lane.samples.high[found], lane.samples.stable[found]];
  };
  const transactions = (lane) => {
    if (lane.transactions) return lane.transactions;
    const open = new Map(), found = [], gaps = new Set(lane.gaps);
    for (let k = 0; k < lane.base.length; k++) {
      const kind = lane.kind[k], pid = lane.producers[lane.who[k]][0];
      if (kind === 1) { if (!open.has(pid)) open.set(pid, [lane.base[k], lane.who[k]]); }
      else if (kind === 2 || kind === 3) {
        const began = open.get(pid);
        if (began) { found.push([began[0], lane.base[k], kind, began[1]]); open.delete(pid); }
      } else if (kind === 4) open.clear();
      if (gaps.has(k)) open.clear(); // batches that are only counted: where these end is not drawn
    }
    for (const [, [first, who]] of open) found.push([first, lane.end, 0, who]);
    return (lane.transactions = found);
  };
  const KINDS = ["data", "transactional data", "ABORT marker", "COMMIT marker", "control record (producer state reset)"];

  const lanesChart = () => {
    const box = document.getElementById("lanes-chart");
    if (!box || !groups.length) return;
    box.replaceChildren();
    const group = groups[state.group];
    if (!state.range) state.range = everything(group);
    const W = Math.max(280, box.clientWidth), left = 12, right = W - 12;
    const [o0, o1] = state.range, x = (o) => left + ((o - o0) / (o1 - o0 || 1)) * (right - left), inverse = (px) => o0 + ((px - left) / (right - left)) * (o1 - o0);
    const each = 78, top = 8, H = top + group.lanes.length * each + 24;
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, height: H, role: "img", "aria-label": `offsets of ${group.topic}-${group.partition}` }, box);
    const rowOf = new Map();
    group.lanes.forEach((lane, row) => {
      const y = top + row * each, track = y + 20;
      if (lane.truncated === null) rowOf.set(lane.cluster, track);
      const levels = sampled(lane, state.time ? state.time[1] : data.length + 1), taken = [];
      const end = (offset, text) => clamp(x(offset) - 4, left + 30 + text.length * 6, right);
      const high = levels && lane.truncated === null && levels[0] >= o0 && levels[0] <= o1 ? `${levels[1] === levels[0] ? "LSO, HW" : "HW"} ${number(levels[0])}` : "";
      if (high) taken.push([end(levels[0], high) - high.length * 6, end(levels[0], high)]);
      // What would be written over something else, or beyond its era, is left out: the ground says the same by its colour.
      const beside = (from, at, text, until) => {
        const to = from + text.length * 6;
        if (to > until || taken.some(([a, b]) => from < b + 6 && to > a - 6)) return;
        taken.push([from, to]);
        make("text", { x: from, y: at, class: "dim" }, svg, text);
      };
      make("text", { x: left, y: y + 12, style: "font-weight:600" }, svg, lane.truncated === null ? lane.cluster : `${lane.cluster}, generation ${lane.generation}, truncated at ${number(lane.truncated)}`);
      for (const era of lane.eras) {
        const a = clamp(x(era.start), left, right), b = clamp(x(era.end === null ? lane.end : Math.min(era.end, lane.end)), left, right);
        if (b <= a) continue;
        make("rect", { x: a, y: track - 3, width: b - a, height: 40, fill: clusterColor(era.owner), opacity: era.source ? 0.07 : 0.16 }, svg);
        if (lane.truncated === null) beside(a + (a === left ? 26 : 4), y + 12, era.source ? `mirrored from ${era.source}` : `${era.owner}'s own`, b);
      }
      if (lane.bins) {
        const n = lane.bins.records.length, width = (lane.end - lane.start) / n, most = Math.max(...lane.bins.records, 1);
        lane.bins.records.forEach((count, k) => {
          if (!count) return;
          for (const [from, to] of outside(drawnOf(lane), lane.start + k * width, lane.start + (k + 1) * width)) {
            const a = x(from), b = x(to);
            if (b < left || a > right) continue;
            make("rect", { x: clamp(a, left, right), y: track + 14 - (count / most) * 10, width: Math.max(0.8, clamp(b, left, right) - clamp(a, left, right)), height: (count / most) * 10 + 2, fill: css("--faint"), opacity: inSelection(lane.bins.time[k]) ? 0.55 : 0.15, "data-counted": JSON.stringify([lane.cluster, from, to]) }, svg);
          }
        });
      }
      let edge = -9;
      for (let k = 0; k < lane.base.length; k++) {
        const a = x(lane.base[k]), b = x(lane.base[k] + lane.count[k]);
        if (b < left || a > right) continue;
        if (b < edge + 0.9 && lane.kind[k] < 2) continue; // in the pixel of the one before it
        edge = b;
        const kind = lane.kind[k], on = inSelection(lane.time[k]), from = clamp(a, left, right), width = Math.max(0.9, clamp(b, left, right) - from - (b - a > 4 ? 0.8 : 0));
        if (kind < 2) make("rect", { x: from, y: track, width, height: 16, fill: producerColor(lane.labels[lane.who[k]]), opacity: on ? 1 : 0.18 }, svg);
        else if (kind === 4) make("path", { d: `M${from} ${track - 4}l6 12l-6 12l-6 -12z`, fill: css("--c3") }, svg);
        else make("rect", { x: from, y: track - 2, width: Math.min(3, Math.max(0.9, width)), height: 20, fill: css(kind === 3 ? "--ok" : "--fail"), opacity: on ? 1 : 0.25 }, svg);
      }
      for (const [first, last, kind] of transactions(lane)) {
        const a = x(first), b = x(last);
        if (b - a < 5 || b < left || a > right) continue;
        const from = clamp(a, left, right), to = clamp(b, left, right);
        make("path", { d: `M${from} ${track + 19}v4H${to}v-4`, fill: "none", stroke: css(kind === 3 ? "--ok" : kind === 2 ? "--fail" : "--info"), "stroke-width": 1.2, "stroke-dasharray": kind ? "none" : "3 2" }, svg);
      }
      if (levels && lane.truncated === null) levels.forEach((offset, k) => {
        if (offset < o0 || offset > o1) return;
        make("line", { x1: x(offset), x2: x(offset), y1: track - 6, y2: track + 36, stroke: css(k ? "--c3" : "--ink"), "stroke-width": 1.4, "stroke-dasharray": k ? "3 2" : "none" }, svg);
        if (k && offset === levels[0]) return;
        const text = k ? `LSO ${number(offset)}` : high;
        make("text", { x: end(offset, text), y: k ? track + 34 : y + 12, "text-anchor": "end", class: "dim" }, svg, text);
      });
      for (const promoted of lane.truncated === null ? lane.promoted : []) if (promoted >= o0 && promoted <= o1) {
        make("line", { x1: x(promoted), x2: x(promoted), y1: top, y2: H - 22, stroke: css("--invalid"), "stroke-dasharray": "4 3" }, svg);
        const text = `promoted at ${number(promoted)}`;
        make("text", { x: clamp(x(promoted) + 4, left, right - text.length * 6.2), y: track + 46, class: "dim" }, svg, text);
      }
      if (lane.truncated !== null && lane.truncated >= o0 && lane.truncated <= o1) make("line", { x1: x(lane.truncated), x2: x(lane.truncated), y1: track - 6, y2: track + 30, stroke: css("--invalid"), "stroke-width": 2 }, svg);
    });
    const here = data.anomalies.filter((a) => a.topic === group.topic && a.partition === group.partition && a.offset >= o0 && a.offset <= o1);
    const last = {};
    here.sort((a, b) => a.offset - b.offset).forEach((a) => {
      const track = rowOf.get(a.cluster);
      if (track === undefined) return;
      const there = rowOf.get(a.source), px = x(a.offset + 0.5);
      if (there !== undefined && there !== track) make("line", { x1: px, y1: track + (there > track ? 18 : -2), x2: x(a.there + 0.5), y2: there + (there > track ? -2 : 18), stroke: css("--invalid"), "stroke-width": 1, opacity: 0.7 }, svg);
      if (px - (last[a.cluster] ?? -99) < 4 && !a.first) return;
      last[a.cluster] = px;
      anomalyMark(svg, px, track + 30, a);
    });
    for (const o of ticks(o0, o1, W < 560 ? 3 : 8)) make("text", { x: clamp(x(o), left + 14, right - 14), y: H - 5, "text-anchor": "middle", class: "dim" }, svg, number(o));
    if (state.offsets) {
      const [a, b] = state.offsets.map((o) => clamp(x(o), left, right));
      make("rect", { x: a, y: top, width: Math.max(1.5, b - a), height: H - 30, fill: css("--select"), opacity: 0.16, "pointer-events": "none" }, svg);
    }
    const live = make("rect", { y: top, height: H - 30, width: 0, x: 0, fill: css("--select"), opacity: 0.2, "pointer-events": "none" }, svg);
    brush(svg, left, right, (a, b) => {
      if (a === null) { selectOffsets(null); return; }
      selectOffsets([Math.floor(inverse(a)), Math.ceil(inverse(b))]);
    }, (px, start) => {
      if (start !== null) { live.setAttribute("x", Math.min(px, start)); live.setAttribute("width", Math.abs(px - start)); }
      const offset = Math.floor(inverse(px));
      const parts = group.lanes.map((lane) => {
        const k = lane.base.findIndex((base, n) => base <= offset && offset < base + lane.count[n]);
        if (k < 0) return null;
        const span = lane.count[k] > 1 ? `${number(lane.base[k])}–${number(lane.base[k] + lane.count[k] - 1)}` : number(lane.base[k]);
        return `${lane.cluster}${lane.truncated === null ? "" : " before the truncation"}: ${span} ${KINDS[lane.kind[k]]}${lane.labels[lane.who[k]] ? ` of ${lane.labels[lane.who[k]]}` : ""}, ${seconds(lane.time[k] / 1000)}`;
      }).filter(Boolean);
      say("lanes-readout", [`offset ${number(offset)}`, ...parts].join(" · "));
    });
    const who = new Set();
    group.lanes.forEach((lane) => lane.base.forEach((base, k) => { if (base >= o0 && base <= o1 && lane.kind[k] < 2) who.add(lane.labels[lane.who[k]]); }));
    const legend = document.getElementById("lanes-legend");
    legend.replaceChildren();
    const entry = (color, text) => {
      const node = html("span", text), swatch = html("span", "", "swatch");
      swatch.style.background = color;
      node.prepend(swatch);
      legend.appendChild(node);
    };
    entry(css("--ok"), "COMMIT"); entry(css("--fail"), "ABORT"); entry(css("--c3"), "producer state reset");
    [...who].filter(Boolean).slice(0, 18).forEach((label) => entry(producerColor(label), label));
    if (group.lanes.some((lane) => lane.bins)) legend.appendChild(html("span", "grey: batches that are counted; near anomalies, promotions and faults each is drawn"));
    if (who.size > 18) legend.appendChild(html("span", `and ${who.size - 18} more ${who.size === 19 ? "producer" : "producers"}`));
  };

  /* ---------- the two together ---------- */
  const draw = () => { timeline(); lanesChart(); buttons(); };
  const select = (window) => {
    state.time = window;
    state.offsets = null;
    if (window && groups.length) {
      const group = groups[state.group], counts = group.lanes.map((lane) => `${lane.cluster} ${lane.bins ? "about " : ""}${number(pieces(lane).reduce((n, [, , , time, count]) => n + (inSelection(time) ? count : 0), 0))}`);
      say("timeline-readout", `${seconds(window[0])} to ${seconds(window[1])}: offsets written in it to ${group.topic}-${group.partition}: ${counts.join(", ")}`);
    }
    draw();
  };
  const selectOffsets = (range) => {
    state.offsets = range;
    state.time = null;
    if (range) {
      let first = Infinity, last = -Infinity;
      for (const lane of groups[state.group].lanes) for (const [from, to, began, ended] of pieces(lane)) {
        if (to > range[0] && from < range[1]) { first = Math.min(first, began / 1000); last = Math.max(last, ended / 1000); }
      }
      if (first <= last) { state.time = [first, Math.max(last, first + data.length / 2000)]; say("lanes-readout", `offsets ${number(range[0])} to ${number(range[1])}: written from ${seconds(first)} to ${seconds(last)}`); }
    }
    draw();
  };
  const show = (anomaly) => {
    const at = groups.findIndex((g) => g.topic === anomaly.topic && g.partition === anomaly.partition);
    if (at < 0) return;
    state.group = at;
    const picker = document.getElementById("lanes-group");
    if (picker) picker.value = String(at);
    if (anomaly.offset >= 0) {
      const lowest = Math.min(anomaly.offset, anomaly.there ?? anomaly.offset), highest = Math.max(anomaly.offset, anomaly.there ?? anomaly.offset);
      state.range = [Math.max(0, lowest - 40), highest + 40];
    } else state.range = everything(groups[at]);
    state.offsets = null;
    draw();
  };
  const on = (id, event, action) => { const node = document.getElementById(id); if (node) node.addEventListener(event, action); };
  const buttons = () => {
    for (const [id, off] of [["timeline-zoom", !state.time], ["timeline-all", state.view[0] === 0 && state.view[1] === data.length], ["lanes-zoom", !state.offsets]]) {
      const node = document.getElementById(id);
      if (node) node.disabled = off;
    }
  };
  on("timeline-zoom", "click", () => { if (state.time) { state.view = state.time; draw(); } });
  on("timeline-all", "click", () => { state.view = [0, data.length]; draw(); });
  on("timeline-clear", "click", () => select(null));
  on("lanes-zoom", "click", () => { if (state.offsets) { state.range = state.offsets; state.offsets = null; state.time = null; draw(); } });
  on("lanes-all", "click", () => { state.range = everything(groups[state.group]); draw(); });
  on("lanes-first", "click", () => { const first = data.anomalies.find((a) => a.first); if (first) show(first); });
  on("lanes-group", "change", (event) => { state.group = +event.target.value; state.range = null; state.offsets = null; draw(); });
  const keys = (id, get, set, limits) => on(id, "keydown", (event) => {
    const [a, b] = get(), step = (b - a) / 10, [low, high] = limits();
    const moves = { ArrowLeft: [a - step, b - step], ArrowRight: [a + step, b + step], "+": [a + step, b - step], "=": [a + step, b - step], "-": [a - step, b + step], Home: [low, high] };
    if (event.key === "Escape") { select(null); return; }
    if (!moves[event.key] || event.target.closest("a")) return;
    event.preventDefault();
    const [from, to] = moves[event.key].map((v) => clamp(v, low, high));
    if (to - from > (high - low) / 1e5) { set([from, to]); draw(); }
  });
  keys("timeline-chart", () => state.view, (v) => { state.view = v; }, () => [0, data.length]);
  keys("lanes-chart", () => state.range || [0, 1], (v) => { state.range = v; }, () => (groups.length ? everything(groups[state.group]) : [0, 1]));
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-anomaly]"), section = event.target.closest('a[href^="#"]');
    if (!link && section && document.getElementById(section.getAttribute("href").slice(1))) unfold(document.getElementById(section.getAttribute("href").slice(1)));
    if (!link) return;
    const anomaly = data.anomalies.find((a) => a.n === +link.dataset.anomaly);
    if (anomaly) { show(anomaly); goTo(event, anomaly); }
  });

  /* ---------- search over events (search.js) ---------- */
  const commitRows = (all) => all.client.flatMap((client, k) => {
    const [cluster, topic, partition] = all.logs[all.log[k]], tp = `${topic}-${partition}`, name = `${all.clients[client]} #${all.number[k]}`;
    const of = { client: all.clients[client].split("/")[0], cluster, partition: tp, operation: name }, ending = all.ending[k];
    const place = (offset) => ({ topic, partition, offset });
    const row = { at: all.at[k], kind: "operation", text: `${name} on ${cluster}: commit acknowledged, ${tp} from offset ${all.first[k]} on`, of, place: place(all.first[k]), also: all.n[k] };
    if (ending === "none") return [row];
    if (ending === "unknown") return [row, { at: null, kind: "not known", text: `whether ${tp} on ${cluster} has a COMMIT or ABORT marker of ${name}: that part of its log was not captured, or is damaged`, of, ends: true }];
    return [row, { at: all.written[k], kind: "marker", text: `${ending} marker of ${name} at ${cluster} ${tp} @ ${all.marker[k]}`, of, place: place(all.marker[k]), ends: true }];
  });
  const rows = [...data.events, ...(data.commits ? commitRows(data.commits) : [])];
  for (const row of rows) row.searched = `${row.kind} ${row.text}`.toLowerCase();
  const leftOut = () => {
    const ENDS = { none: "without a marker", unknown: "whose marker is unknown", COMMIT: "with a COMMIT marker", ABORT: "with an ABORT marker" };
    const more = data.commits ? Object.entries(data.commits.counted).map(([ending, count]) => [ENDS[ending], count - data.commits.ending.filter((each) => each === ending).length]).filter(([, count]) => count > 0) : [];
    const said = data.events_left_out ? [`${number(data.events_left_out)} more events and operations are in events.jsonl and operations/ of the run directory`] : [];
    return [...said, ...more.map(([ending, count]) => `${number(count)} more acknowledged commits ${ending} are counted, not listed`)];
  };
  const eventText = (row) => {
    const shown = html("span"), link = html(row.n || (row.place && groups.length) ? "a" : "span", row.text);
    shown.appendChild(link);
    if (row.n) { link.href = `#a-${row.n}`; link.dataset.anomaly = row.n; }
    else if (row.place && groups.length) { link.href = "#lanes"; link.addEventListener("click", () => show(row.place)); }
    if (row.also) { const anomaly = html("a", `anomaly ${row.also}`); anomaly.href = `#a-${row.also}`; anomaly.dataset.anomaly = row.also; shown.append(" · ", anomaly); }
    return shown;
  };
  const search = () => {
    const field = document.getElementById("events-query"), body = document.getElementById("events-rows");
    if (!field || !body) return;
    const found = eventSearch(rows, field.value);
    body.replaceChildren();
    for (const { row, then } of found.rows.slice(0, 200)) {
      const line = html("tr"), text = html("td");
      text.appendChild(eventText(row));
      if (then) { const next = html("div", "then ", "faint"); next.appendChild(eventText(then)); text.appendChild(next); }
      line.append(html("td", row.at === null ? "" : row.at.toFixed(2), "n"), html("td", row.kind, "nowrap"), text);
      body.appendChild(line);
    }
    const of = found.of === null ? number(rows.length) : `the ${number(found.of)} that match what stands first`;
    say("events-count", [`${number(found.rows.length)} of ${of}${found.rows.length > 200 ? ", the first 200 are shown" : ""}`, ...leftOut()].join("; "));
  };
  on("events-query", "input", search);
  document.querySelectorAll("button[data-query]").forEach((button) => button.addEventListener("click", () => {
    document.getElementById("events-query").value = button.dataset.query;
    search();
  }));

  // Paper cannot be unfolded: everything is printed, and folded again afterwards. Of the bytes those of the first cause are; of
  // the others the line stands there that has their command. What checks promise is a document of its own.
  let folded = [];
  const printing = (now) => { document.documentElement.classList.toggle("printing", now); draw(); };
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll('details:not([open]):not([id^="bytes-"]):not([id^="check-"])')];
    folded.forEach((each) => { each.open = true; });
    printing(true);
  });
  window.addEventListener("afterprint", () => { folded.forEach((each) => { each.open = false; }); folded = []; printing(false); });

  // On a phone a row stands as lines, and each cell says which column it is of.
  document.querySelectorAll("table.stack").forEach((table) => {
    const columns = [...table.querySelectorAll("thead th")].map((each) => each.dataset.label ?? each.textContent);
    table.querySelectorAll("tbody tr").forEach((row) => [...row.cells].forEach((cell, k) => { if (columns[k]) cell.dataset.label = columns[k]; }));
  });

  const picker = document.getElementById("lanes-group");
  if (picker) groups.forEach((group, n) => { const option = html("option", `${group.topic}-${group.partition}`); option.value = String(n); picker.appendChild(option); });
  const first = data.anomalies.find((a) => a.first);
  if (first && groups.length) { const at = groups.findIndex((g) => g.topic === first.topic && g.partition === first.partition); if (at >= 0) { state.group = at; if (picker) picker.value = String(at); } }
  search();
  draw();
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } });
  document.documentElement.dataset.drawn = "yes";
})();
