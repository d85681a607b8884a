#!/bin/sh
# Two Kafka clusters of one broker each, as somebody else runs them: linkflap has no part in it.
#
#   KAFKA_LIBS=/opt/kafka/libs sh clusters.sh start DIR     returns when both serve
#   sh clusters.sh kill DIR east                            one broker (or connect-1), as if its machine had failed
#   sh clusters.sh revive DIR east                          and again, on the data that it has
#   sh clusters.sh connect DIR                              a Connect cluster beside west, of two workers
#   sh clusters.sh stop DIR
#
# KAFKA_LIBS is a folder with Kafka's jars; JAVA is a Java 17 or later. EAST and WEST are their ports;
# each cluster takes the next port too, for its controller. CONNECT and the next one are the ports of Connect's REST API. They end by themselves after an hour.
set -eu
what=$1 folder=$2
java=${JAVA:-java}

start() { # name, port, cluster id
    home=$folder/$1
    mkdir -p "$home"
    cat >"$home/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$(($2 + 1))
listeners=PLAINTEXT://127.0.0.1:$2,CONTROLLER://127.0.0.1:$(($2 + 1))
controller.listener.names=CONTROLLER
log.dirs=$home/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
END
    $java -cp "$KAFKA_LIBS/*" kafka.tools.StorageTool format \
        -t "$3" -c "$home/server.properties" >"$home/format.log" 2>&1
    cat >"$home/serve" <<END
exec timeout 3600 "$java" -Xmx512m -cp "$KAFKA_LIBS/*" kafka.Kafka "$home/server.properties"
END
    serve "$home"
}

serve() { # folder of a cluster
    sh "$1/serve" >>"$1/server.log" 2>&1 &
    echo $! >"$1/pid"
}

work() { # number of a Connect worker, port
    home=$folder/connect-$1
    mkdir -p "$home"
    cat >"$home/connect.properties" <<END
bootstrap.servers=127.0.0.1:${WEST:-9192}
group.id=connect-west
listeners=http://127.0.0.1:$2
scheduled.rebalance.max.delay.ms=2000
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.flush.interval.ms=10000
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
END
    cat >"$home/serve" <<END
exec timeout 3600 "$java" -Xmx512m -cp "$KAFKA_LIBS/*" org.apache.kafka.connect.cli.ConnectDistributed "$home/connect.properties"
END
    serve "$home"
}

serves() { # name, port; Kafka's own client waits for a minute
    $java -cp "$KAFKA_LIBS/*" org.apache.kafka.tools.TopicCommand \
        --bootstrap-server "127.0.0.1:$2" --list >"$folder/$1/ready.log" 2>&1 && return
    echo "cluster $1 did not start; see $folder/$1" >&2
    exit 1
}

case $what in
start)
    start east "${EAST:-9092}" 4L6g3nShT-eMCtK--X86sw
    start west "${WEST:-9192}" 5M7h4oTiU-fNDuL--Y97tx
    serves east "${EAST:-9092}"
    serves west "${WEST:-9192}"
    ;;
kill) # the broker itself: timeout has started it, and ends with it
    kill -9 $(ps -o pid= --ppid "$(cat "$folder/$3/pid")")
    ;;
connect)
    port=${CONNECT:-8083}
    work 1 "$port"
    work 2 $((port + 1))
    for second in $(seq 120); do
        curl -fs "http://127.0.0.1:$port/connectors" && curl -fs "http://127.0.0.1:$((port + 1))/connectors" && exit
        sleep 1
    done
    echo "Connect did not start; see $folder/connect-1" >&2
    exit 1
    ;;
revive) # linkflap starts it too where its kill has failed: a broker that runs is left alone
    [ -n "$(ps -o pid= --ppid "$(cat "$folder/$3/pid")")" ] || serve "$folder/$3"
    ;;
stop)
    for name in connect-1 connect-2 east west; do
        [ ! -f "$folder/$name/pid" ] || kill "$(cat "$folder/$name/pid")" || true
    done
    ;;
esac
