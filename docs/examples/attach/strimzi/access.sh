#!/bin/sh
# What linkflap needs of a Kafka cluster that Strimzi runs, read with kubectl:
#
#   sh access.sh CLUSTER LISTENER USER [-n NAMESPACE] [--context CONTEXT]
#
# CLUSTER is a Kafka resource, LISTENER one of its listeners with TLS, USER a KafkaUser with authentication scram-sha-512 or tls.
# Writes CLUSTER.properties and the certificates that it names into this folder, for nobody else to read, and prints the cluster
# as a topology has it.
set -eu
umask 077
cluster=$1 listener=$2 user=$3
shift 3
of() { # resource, name, JSONPath, options of kubectl
    resource=$1 name=$2 path=$3
    shift 3
    kubectl get "$resource" "$name" -o "jsonpath=$path" "$@"
}

bootstrap=$(of kafka "$cluster" "{.status.listeners[?(@.name==\"$listener\")].bootstrapServers}" "$@")
[ -n "$bootstrap" ] || { echo "Kafka $cluster has no listener $listener that is ready" >&2; exit 1; }
of secret "$cluster-cluster-ca-cert" '{.data.ca\.crt}' "$@" | base64 -d >"$cluster-ca.crt"
password=$(of secret "$user" '{.data.password}' "$@" | base64 -d)
{
    echo "ssl.ca.location=$PWD/$cluster-ca.crt"
    if [ -n "$password" ]; then
        echo "security.protocol=sasl_ssl"
        echo "sasl.mechanism=SCRAM-SHA-512"
        echo "sasl.username=$user"
        echo "sasl.password=$password"
    else
        of secret "$user" '{.data.user\.crt}' "$@" | base64 -d >"$cluster-$user.crt"
        of secret "$user" '{.data.user\.key}' "$@" | base64 -d >"$cluster-$user.key"
        echo "security.protocol=ssl"
        echo "ssl.certificate.location=$PWD/$cluster-$user.crt"
        echo "ssl.key.location=$PWD/$cluster-$user.key"
    fi
} >"$cluster.properties"
echo "$cluster@\"bootstrap:$bootstrap\"{$cluster.properties}"
