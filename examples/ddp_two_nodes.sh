#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Distributed training on two nodes that are network namespaces of this machine: see usage below.
set -euo pipefail

usage() {
    cat <<END
usage: ddp_two_nodes.sh [options]
Trains imagenet_resnet18.py on two nodes by torchrun and gloo. Each node is a network namespace with an
os2gd of its own; the store, os2g-s3d in a third one, is reached over their bridge. Afterwards the
store's log says whether every sample was read as often as the samplers say. Needs root.

  --client gdd|plan|files  how samples are read (gdd): landed by os2gd, or from a mount in each node,
                           with or without the order declared
  --model resnet18|none    none only loads (resnet18)
  --ranks N                of each node (1)
  --images N               samples (101: no multiple of the number of ranks)
  --batch N                samples of a rank's batch (8)
  --epochs N               (2)
  --workers N              of each rank, for plan and files (2)
  --latency SPEC           of the store, as os2g-s3d has it (10ms)
  --build DIR              where OS2G was built (build, beside examples)
  --python PROGRAM         one that has torch, and torchvision for resnet18 (python3)
END
}

die() {
    echo "ddp_two_nodes.sh: $*" >&2
    exit 1
}

here=$(dirname "$(realpath "$0")")
client=gdd model=resnet18 ranks=1 images=101 batch=8 epochs=2 workers=2 latency=10ms
build=${OS2G_BUILD:-$here/../build} python=python3
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit ;;
    --client | --model | --ranks | --images | --batch | --epochs | --workers | --latency | --build | \
        --python)
        [ $# -gt 1 ] || die "$1 needs a value"
        declare "${1#--}=$2"
        shift 2
        ;;
    *) usage >&2 && exit 2 ;;
    esac
done
case $client in gdd | plan | files) ;; *) die "no client is called $client: gdd, plan or files" ;; esac
case $model in resnet18 | none) ;; *) die "no model is called $model: resnet18 or none" ;; esac
for number in ranks images batch epochs workers; do
    [[ ${!number} =~ ^[1-9][0-9]*$ ]] || die "--$number is a number from 1 on, not ${!number}"
done
[ "$ranks" -le 9 ] || die "--ranks is at most 9"
[ "$(id -u)" = 0 ] || die "only root makes network namespaces"
for tool in ip nsenter; do
    [ -n "$(type -P $tool)" ] || die "no $tool (Debian: apt-get install iproute2 util-linux)"
done
[ -x "$build/bin/os2gd" ] && [ -d "$build/python" ] ||
    die "nothing is built in $build: run make, or say --build DIR"
build=$(realpath "$build")
needed=torch
[ $model = none ] || needed=torch,torchvision
"$python" -c "import numpy, $needed" 2>/dev/null ||
    die "$python cannot import $needed (Debian: apt-get install python3-torch python3-torchvision)"

# inside NAMESPACE COMMAND...: keeps the mount namespace, so that a mount is seen from all of them
inside() {
    nsenter --net="/run/netns/$1" -- "${@:2}"
}

# end_all PID...: asks them to end, and after five seconds no longer asks
end_all() {
    [ $# -gt 0 ] || return 0
    kill "$@" 2>/dev/null || return 0
    for _ in {1..50}; do
        kill -0 "$@" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$@" 2>/dev/null || true
}

trainers=()
clean_up() {
    trap '' INT TERM HUP
    # torchrun would take its time, and say much
    [ ${#trainers[@]} = 0 ] || kill -KILL "${trainers[@]}" 2>/dev/null || true
    for node in 0 1; do
        ! mountpoint -q "$top/node$node" || umount --lazy "$top/node$node"
    done
    for space in "${nodes[@]}" "$store"; do
        [ -e "/run/netns/$space" ] || continue
        # shellcheck disable=SC2046
        end_all $(ip netns pids "$space")
        ip netns del "$space"
    done
    rm -rf --one-file-system "$top"
}
# Everything that is made here has a name of its own: what runs in the namespaces is ours, too.
top=$(mktemp -d /tmp/os2g-ddp-XXXXXX)
name=$(basename "$top")
nodes=("$name-0" "$name-1")
store=$name-store
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- the network: a bridge in the store's namespace, a cable to each node ---
net() {
    ip "$@" || die "this machine does not let me: ip $*"
}
net netns add "$store"
net -n "$store" link set lo up
net -n "$store" link add bridge type bridge
net -n "$store" addr add 10.0.0.254/24 dev bridge
net -n "$store" link set bridge up
for node in 0 1; do
    net netns add "${nodes[node]}"
    net -n "${nodes[node]}" link set lo up
    net -n "${nodes[node]}" link add eth0 type veth peer name "node$node" netns "$store"
    net -n "${nodes[node]}" addr add "10.0.0.1$node/24" dev eth0
    net -n "${nodes[node]}" link set eth0 up
    net -n "$store" link set "node$node" master bridge up
done
echo "namespaces: ${nodes[*]} $store"

# --- the store, and each node's daemon ---
"$python" "$here/make_images.py" "$top/store/train" --images "$images" --classes 4
inside "$store" "$build/bin/os2g-s3d" --listen 10.0.0.254:9000 --data "$top/store" --latency "$latency" \
    --log-requests "$top/requests" --port-file "$top/port" >"$top/store.log" 2>&1 &
# wait_for WHAT LOG COMMAND...: until it succeeds
wait_for() {
    for _ in {1..200}; do
        ! "${@:3}" 2>/dev/null || return 0
        sleep 0.1
    done
    cat "$2" >&2
    die "$1 did not start"
}
wait_for "the store" "$top/store.log" test -s "$top/port"

export AWS_ACCESS_KEY_ID=os2g AWS_SECRET_ACCESS_KEY=os2g-secret AWS_EC2_METADATA_DISABLED=true
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_SECURITY_TOKEN AWS_CREDENTIAL_EXPIRATION
unset http_proxy HTTP_PROXY
# hedging asks twice for what is late, and would be counted as a second reading
options=endpoint_url=http://10.0.0.254:9000,no_hedging
for node in 0 1; do
    log=$top/os2gd$node.log
    place=$top/node$node
    if [ $client = gdd ]; then
        inside "${nodes[node]}" "$build/bin/os2gd" --export s3://train --socket "$place" -o $options \
            >"$log" 2>&1 &
        wait_for "node $node's os2gd" "$log" test -S "$place"
    else
        mkdir "$place"
        inside "${nodes[node]}" "$build/bin/os2g" mount s3://train "$place" --foreground -o $options \
            >"$log" 2>&1 &
        wait_for "node $node's mount" "$log" mountpoint -q "$place"
    fi
done

# --- training ---
export PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} GLOO_SOCKET_IFNAME=eth0
threads=$(($(nproc) / (2 * ranks)))
export OMP_NUM_THREADS=$((threads ? threads : 1))
# torch 1.13 on Python 3.11 fails on the defaults of --redirects and --tee, none; here is no rank 9
torchrun=("$python" -m torch.distributed.run --redirects 9:1 --tee 9:1)
for node in 0 1; do
    inside "${nodes[node]}" "${torchrun[@]}" --nnodes 2 --node_rank $node --nproc_per_node "$ranks" \
        --master_addr 10.0.0.10 --master_port 29500 "$here/imagenet_resnet18.py" \
        --client $client --data "$top/node$node" --model $model --device cpu --batch "$batch" \
        --epochs "$epochs" --workers "$workers" --report "$top/report" --digests \
        > >(sed -u "s/^/node $node: /") 2>&1 &
    trainers+=($!)
done
wait -n "${trainers[@]}" || die "a node's training failed"
wait "${trainers[@]}" || die "a node's training failed"
trainers=()

for node in 0 1; do
    "$build/bin/os2g" status --json "$top/node$node" >"$top/status$node"
done
"$python" "$here/ddp_check.py" "$top" --client $client --ranks "$ranks"
