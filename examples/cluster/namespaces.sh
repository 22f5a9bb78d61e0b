#!/bin/sh
# Two data centres on one machine: network namespaces `lab-east` and `lab-west`, and `lab-switch`
# with the only way from one to the other. Needs root, and iproute2.
#
#   namespaces.sh up                     make them
#   namespaces.sh in DC COMMAND...       run a command in a data centre
#   namespaces.sh start DC NAME COMMAND...   the same in the background, and wait until it is ready;
#                                        it logs to NAME.log, and its number is in NAME.pid
#   namespaces.sh cut                    cut the data centres apart
#   namespaces.sh heal                   join them again
#   namespaces.sh down                   end all that runs in them, and remove them
#
# The variable LAB is another word for `lab`, where that is taken.
set -eu
lab=${LAB:-lab}
switch=$lab-switch

fail() {
    echo "namespaces.sh: $*" >&2
    exit 1
}

# The third part of a data centre's address.
number_of() {
    case $1 in
        east) echo 1 ;;
        west) echo 2 ;;
        *) fail "unknown data centre '$1'; allowed: east, west" ;;
    esac
}

up() {
    for space in "$switch" "$lab-east" "$lab-west"; do
        if [ -e "/run/netns/$space" ]; then fail "$space exists already: namespaces.sh down"; fi
    done
    ip netns add "$switch"
    ip -n "$switch" link add bridge type bridge
    ip -n "$switch" link set bridge up
    for dc in east west; do
        ip netns add "$lab-$dc"
        ip -n "$switch" link add "to-$dc" type veth peer name out netns "$lab-$dc"
        ip -n "$switch" link set "to-$dc" master bridge up
        ip -n "$lab-$dc" address add "10.77.$(number_of "$dc").1/16" dev out
        ip -n "$lab-$dc" link set out up
        ip -n "$lab-$dc" link set lo up
    done
}

start() {
    dc=$1 name=$2
    shift 2
    number_of "$dc" > /dev/null
    : > "$name.log"
    ip netns exec "$lab-$dc" "$@" > "$name.log" 2>&1 < /dev/null &
    echo $! > "$name.pid"
    left=300
    until grep -qi 'ready ' "$name.log"; do
        if ! kill -0 "$(cat "$name.pid")" 2> /dev/null || [ $left -eq 0 ]; then
            cat "$name.log" >&2
            fail "$name does not become ready"
        fi
        left=$((left - 1))
        sleep 0.1
    done
}

# Packets are lost without an error, as if a cable were cut.
cut() {
    ip -n "$switch" link set to-west nomaster
}

heal() {
    ip -n "$switch" link set to-west master bridge
}

down() {
    for space in "$lab-east" "$lab-west" "$switch"; do
        if [ -e "/run/netns/$space" ]; then
            for pid in $(ip netns pids "$space"); do kill -9 "$pid" 2> /dev/null || true; done
            ip netns del "$space"
        fi
    done
}

word=${1:-}
if [ $# -gt 0 ]; then shift; fi
case $word in
    up | cut | heal | down)
        if [ $# -gt 0 ]; then fail "$word takes no arguments"; fi
        "$word"
        ;;
    in)
        if [ $# -lt 2 ]; then fail "in DC COMMAND..."; fi
        number_of "$1" > /dev/null
        dc=$1
        shift
        exec ip netns exec "$lab-$dc" "$@"
        ;;
    start)
        if [ $# -lt 3 ]; then fail "start DC NAME COMMAND..."; fi
        start "$@"
        ;;
    *) fail "'$word'; allowed: up, in, start, cut, heal, down" ;;
esac
