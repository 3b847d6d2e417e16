# shellcheck shell=bash
# For the stages of tools/test, which start in the project's root. A stage sources this first.
set -euo pipefail

# Ends the stage: nothing of it can be tried here, for the reason given.
skip() {
    skip_part "$@"
    exit 77
}

# Records that a part of the stage was not tried, and why. The stage goes on.
skip_part() {
    echo "SKIPPED: $*"
    echo "$*" >>"${SOFTRNIC_TEST_SKIPS:-/dev/null}"
}

# Records what no privilege or package could make possible here: this kernel lacks it. No failure, even
# with CI=true, so it is only for what the same tests show on another kernel.
note() {
    echo "NOT POSSIBLE: $*"
    echo "note: $*" >>"${SOFTRNIC_TEST_SKIPS:-/dev/null}"
}

# Skips the stage unless all the programs are there. `need SETUP-GROUP PROGRAM…`
need() {
    local group="$1" program
    shift
    for program in "$@"; do
        command -v "$program" >/dev/null || skip "needs $program (tools/setup $group)"
    done
}

need_root() {
    ((EUID == 0)) || skip "needs root"
}

# Skips the stage unless kernel rxe can run in guests here.
need_guests() {
    need interop qemu-system-x86_64 busybox cpio zstd gcc tshark editcap ibv_rc_pingpong ib_write_bw rping
    need_root
    [[ $(uname -m) == x86_64 ]] || skip "the guests are x86-64"
    [[ -c /dev/net/tun ]] || skip "needs /dev/net/tun"
}

# Builds what the tests of programs run, for each of them: what one stage builds, the others find.
build_programs() {
    local profile="${SOFTRNIC_TEST_PROFILE:-release}"
    cargo build --locked --profile "$profile" \
        -p softrnic-cli -p softrnic-ibverbs -p softrnic-interpose -p softrnic-xdp-tests -p nvmf-target
    tools/link-ibverbs "$profile" >/dev/null
}
