"""What is looked for in a page: text that is too faint, and what goes beyond its edge."""

from __future__ import annotations

TOO_FAINT = """() => {
  const parse = (text) => {
    const m = text.match(/color\\(srgb ([\\d.]+) ([\\d.]+) ([\\d.]+)(?: \\/ ([\\d.]+))?\\)/);
    if (m) return [m[1] * 255, m[2] * 255, m[3] * 255, m[4] === undefined ? 1 : +m[4]];
    const n = text.match(/[\\d.]+/g).map(Number);
    return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1];
  };
  const light = ([r, g, b]) => {
    const linear = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map(linear);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (node) => {
    const layers = [];
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    const mix = (under, over) => under.map((v, k) => over[k] * over[3] + v * (1 - over[3]));
    return layers.reverse().reduce(mix, [255, 255, 255]);
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const texts = [...node.childNodes].filter((c) => c.nodeType === 3);
    const text = texts.map((c) => c.textContent.trim()).join("");
    const apart = node.closest("script, style, noscript, title, button:disabled");
    if (!text || apart || !node.getClientRects().length) continue;
    const style = getComputedStyle(node), size = parseFloat(style.fontSize);
    const bold = +style.fontWeight >= 700;
    const ink = parse(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const least = size >= 24 || (bold && size >= 18.6) ? 3 : 4.5;
    if (ratio < least) found.push(`${ratio.toFixed(2)} ${text.slice(0, 40)}`);
  }
  return found;
}"""
"""Text whose contrast is less than WCAG 2 AA asks for."""


CROPPED = """() => [...document.querySelectorAll("#lanes-chart svg")].flatMap((svg) => {
  const edge = svg.getBoundingClientRect();
  const cropped = (box) => box.left < edge.left - 1 || box.right > edge.right + 1;
  const texts = [...svg.querySelectorAll("text")];
  const found = texts.filter((each) => cropped(each.getBoundingClientRect()));
  return found.map((each) => each.textContent);
})"""
"""What is written in the offsets and goes beyond their edge."""
