#!/usr/bin/env bash
# Install what tests need and run them all; as root, because they start real containers.
#
#   ./test.sh [SECTION …] [ARGUMENTS of pytest]
#
# Sections: lint types imports generated docs wheel unit sim lowest fuzz contract integration cluster
# nodes (all of them when none is named), and two that only run when they are named: mutation, and quick,
# which takes two minutes: lint without prose, imports, generated, and the types and unit tests of the
# packages that differ from the main branch.
# "lowest" are the unit tests with the oldest packages that pyproject.toml allows; all of them when it is
# named, else those of the packages that use such packages most. The control plane of the section
# cluster is built first, once, which takes minutes and needs a fitting Go. The section nodes builds an
# image of a virtual machine first, which takes minutes, too; it runs all its tests when it is named,
# else those that fit into twelve minutes. Where a machine cannot run one of these two, the section says
# so and does not run, unless it is named.
# For example:
#   ./test.sh unit
#   ./test.sh integration -k address -x
#   ./test.sh integration tests/integration/environment
#   ./test.sh integration --runtime unix:///run/crio/crio.sock --load-images COMMAND
#                                    on another CRI runtime, for these tests alone (docs/contributing.md)
#   ./test.sh integration --virtual bookworm tests/integration/cgroups    in a virtual node with systemd and
#                                    cgroup v2, one test at a time; an image of it is built first
#   ./test.sh sim --runs 1000        so many random histories with seeds that nobody has run
#   ./test.sh fuzz --seconds 600 manifest mountinfo   these targets longer than a second (all: none named)
#   ./test.sh cluster --kubernetes v1.36.3     a node of that control plane, which is built once; also
#                                    v1.36 (the release that we name), --programs DIR (built ones)
#   ./test.sh nodes --cuts 50 --seed 7   agents on virtual nodes with systemd and cgroup v2; so many power
#                                    cuts (3), at moments drawn with that seed (a fresh one)
#   ./test.sh nodes --cluster        a cluster of three virtual nodes instead, with a real control plane and
#                                    kube-proxy, whose programs are built first; --upstream REGEX adds
#                                    Kubernetes' end-to-end tests of these names
#   ./test.sh nodes --machine qemu tests/nodes/test_cpus.py   under QEMU, for what user-mode Linux lacks
#   ./test.sh nodes --suite bookworm      the same tests on Debian 12 (trixie unless named; testing)
#   ./test.sh mutation resources pods    unit tests of these packages against small faults in their decisions
# A skipped test is a failure. JOBS=N sets how many tests run at once (2).
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
source tools/env/venv.sh
all=(lint types imports generated docs wheel unit sim lowest fuzz contract integration cluster nodes)
named=(quick mutation) # run only when they are named
# what tests start: Debian's own packages, by section
declare -A packages=(
    [unit]="prometheus"
    [cluster]="containerd runc containernetworking-plugins iptables iproute2 busybox-static"
    [nodes]="mmdebstrap user-mode-linux e2fsprogs busybox-static iptables"
    [integration]="containerd runc containernetworking-plugins iptables iproute2 busybox-static
        stress-ng docker-registry skopeo apache2-utils prometheus dbus chromium-headless-shell"
)

sections=()
while [ $# -gt 0 ] && [[ " ${all[*]} ${named[*]} " == *" $1 "* ]]; do
    sections+=("$1")
    shift
done
if [ "${1:-}" = --runs ]; then
    [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || { echo "test.sh: --runs takes a number" >&2; exit 2; }
    export KUBELETPY_SIM_RUNS="$2"
    shift 2
    set -- -k "test_history and fresh" "$@"
fi
case "${1:-}" in
-h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' test.sh
    exit 0
    ;;
-* | tests/* | "") ;;
*)
    if [ "${sections[*]:-}" != mutation ]; then # its arguments are names of packages
        echo "test.sh: no section $1; there are: ${all[*]} ${named[*]}" >&2
        exit 2
    fi
    ;;
esac
by_default=false
[ ${#sections[@]} -gt 0 ] || { by_default=true && sections=("${all[@]}"); }

if [[ " $* " == *[\ =]qemu\ * ]]; then
    packages[nodes]+=" qemu-system-x86 qemu-utils kmod"
fi
# what the tests start is then in the image of the node
[[ " $* " != *" --virtual "* ]] || packages[integration]="${packages[nodes]}"
# vale, which reads our prose, is built where there is Go; its parsers are C
! command -v go >/dev/null || packages[lint]="gcc libc6-dev"

# Install what the given sections start.
system_packages() {
    local missing=() log="$PWD/.cache/install.log" package section wanted=()
    for section in "$@"; do
        read -ra more <<<"$(tr '\n' ' ' <<<"${packages[$section]:-}")"
        wanted+=("${more[@]}")
    done
    for package in "${wanted[@]}"; do
        [[ " ${missing[*]} " != *" $package "* ]] || continue
        [ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            missing+=("$package")
    done
    local begin=$SECONDS state=ready
    printf '[2/2] Debian packages … '
    if [ ${#missing[@]} -gt 0 ]; then
        if [ "$(id -u)" -ne 0 ]; then
            echo "missing" >&2
            echo "test.sh: installing them needs root: ${missing[*]}" >&2
            return 1
        fi
        printf 'installing %d … ' "${#missing[@]}"
        apt_install "$log" "${missing[@]}" || return 1
        state="installed ${missing[*]}"
    fi
    printf '%s (%d s)\n' "$state" "$((SECONDS - begin))"
}

# pytest on one folder, or on those of the chosen paths that are in it; "no test matches" is an
# error only when nobody chose tests.
tests() {
    local folder="$1" code=0 argument arguments=() paths=()
    shift
    for argument in "${chosen[@]}"; do
        case "$argument" in
        "$folder" | "$folder"/*) paths+=("$argument") ;;
        tests/*) ;;
        *) arguments+=("$argument") ;;
        esac
    done
    if [ ${#paths[@]} -eq 0 ] && [[ " ${chosen[*]}" == *" tests/"* ]]; then
        echo "no chosen path is in $folder"
        return 0
    fi
    [ ${#paths[@]} -gt 0 ] || paths=("$folder")
    python -m pytest -p tools.env.no_skips "$@" "${arguments[@]}" "${paths[@]}" || code=$?
    [ "$code" -ne 5 ] || [ ${#chosen[@]} -eq 0 ] || code=0
    return "$code"
}

# An environment of its own for a section, in .cache/SECTION, from requirements/SECTION.txt.
section_environment() {
    local venv="$PWD/.cache/$1" log="$PWD/.cache/install-$1.log" lock="$PWD/requirements/$1.txt"
    ! cmp --silent "$lock" "$venv/installed" || return 0
    quietly "$log" python3 -m venv --clear "$venv" &&
        locked_install "$1" "$log" "$venv" "$lock" "$PWD" && cp "$lock" "$venv/installed"
}

# The names of the files in changes/, and that a section of the changelog can be made of them.
news_fragments() {
    towncrier build --draft --version next >/dev/null || {
        echo "changes/README.md says how files there are named" >&2
        return 1
    }
}

# The commits since the last release, or the last 50; none may wait to be squashed.
commit_messages() {
    local since
    [ -e .git ] || return 0
    since=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) ||
        since=$(git rev-list --max-count=51 HEAD | tail -n 1)
    gitlint --commits "$since..HEAD" -c general.ignore-fixup-commits=false \
        -c general.ignore-squash-commits=false
}

# The packages that differ from the main branch, by the names of their unit tests.
changed_packages() {
    local main
    main=$(git rev-parse --verify --quiet origin/main || git rev-parse --verify --quiet main || echo HEAD)
    {
        git diff --name-only "$(git merge-base HEAD "$main")"
        git ls-files --others --exclude-standard
    } | sed -n -E 's,^(kubeletpy|tools|tests/unit)/([^/]+)/.*,\2,p; s,^up/.*,kubeletpy_up,p; s,^bench/.*,bench,p' |
        sort -u
}

need_root() {
    [ "$(id -u)" -ne 0 ] || return 0
    echo "these tests start containers: run ./test.sh as root" >&2
    return 1
}

run_section() {
    case "$1" in
    lint)
        ruff check . && ruff format --check . && news_fragments &&
            commit_messages || return 1
        # building vale takes minutes the first time: beside the integration tests, if they run
        [[ " ${later[*]} " == *" prose "* ]] || run_section prose
        ;;
    prose) python tools/check_language.py ;;
    types) mypy ;;
    imports) lint-imports ;;
    generated)
        local generator
        for generator in tools/gen_*.py; do
            python "$generator" --check || return 1
        done
        echo "generated files are current"
        ;;
    docs)
        NO_MKDOCS_2_WARNING=1 mkdocs build --strict || return 1 # --quiet would hide warnings from --strict
        python tools/check_links.py || return 1
        echo "the site is in build/site, and every link leads somewhere"
        ;;
    wheel) python tools/check_wheels.py ;;
    quick)
        local package paths=(tests/unit/test_*.py) types=()
        for package in $(changed_packages); do
            [ ! -d "tests/unit/$package" ] || paths+=("tests/unit/$package")
            [ ! -d "kubeletpy/$package" ] || types+=("kubeletpy/$package" "tests/unit/$package")
        done
        echo "changed: ${paths[*]}"
        ruff check . && ruff format --check . && run_section imports && run_section generated || return 1
        [ ${#types[@]} -eq 0 ] || mypy "${types[@]}" || return 1
        python -m pytest -p tools.env.no_skips -q -n "${JOBS:-2}" "${chosen[@]}" "${paths[@]}"
        ;;
    unit) tests tests/unit -n "${JOBS:-2}" ;;
    # against any other server by hand: ./test.sh contract --kubeconfig FILE
    contract)
        local workers=(-n "${JOBS:-2}")
        [[ " ${chosen[*]} " != *" --kubeconfig"* ]] || workers=() # one server for all
        tests tests/contract "${workers[@]}"
        ;;
    sim)
        # for all test processes alike; a seed that fails is replayed with KUBELETPY_SIM_SEED
        : "${KUBELETPY_SIM_FRESH:=$((RANDOM * 32768 * 100 + RANDOM * 100 + 1000000))}"
        export KUBELETPY_SIM_FRESH
        echo "fresh histories have seeds from $KUBELETPY_SIM_FRESH on"
        tests tests/sim -n "${JOBS:-2}"
        ;;
    fuzz)
        # the unit tests have tried what was kept; a second each finds what has just been broken
        local options=()
        [ "${sections[*]}" != fuzz ] || options=("${chosen[@]}")
        python -m tests.fuzz --jobs "${JOBS:-2}" --seconds 1 "${options[@]}"
        ;;
    lowest)
        # The unit tests with the oldest versions that pyproject.toml allows; in a run of all sections only
        # those of the packages that work with such packages most, to keep CI short. The generator of stubs
        # needs a newer protobuf than the stubs themselves; the section generated runs it.
        local chosen=("${chosen[@]}")
        if $by_default && [ ${#chosen[@]} -eq 0 ]; then
            chosen=(tests/unit/{base/wire,kubeapi,metrics,node/{certificates,shutdown},probes/handlers,remote})
        fi
        section_environment lowest && PATH="$PWD/.cache/lowest/bin:$PATH" tests tests/unit -n "${JOBS:-2}" \
            --deselect tests/unit/remote/test_generated.py::test_stubs_are_current
        ;;
    mutation)
        section_environment mutation &&
            "$PWD/.cache/mutation/bin/python" -m tools.mutation --jobs "${JOBS:-2}" "${chosen[@]}"
        ;;
    control-plane) python -m tools.control_plane build ;;
    node-image) python -m tools.lab.prepare build ;;
    # a control plane for each worker
    cluster) need_root && tests tests/cluster -n "${JOBS:-2}" --dist worksteal ;;
    nodes)
        need_root || return 1
        if $by_default; then
            tests tests/nodes -o timeout=3600 -m "not long" -n "${JOBS:-2}" --dist worksteal
        else
            tests tests/nodes -o timeout=3600
        fi
        ;;
    integration)
        need_root || return 1
        if [ "${chosen[0]:-}" = --virtual ]; then
            python -m tools.lab.integration "${chosen[@]:1}"
            return
        fi
        local workers=(-n "${JOBS:-2}" --dist loadfile --no-loadscope-reorder)
        # one runtime serves one agent at a time
        [[ " ${chosen[*]} " != *" --runtime"* ]] || workers=()
        tests tests/integration "${workers[@]}"
        ;;
    esac
}

python_environment "$PWD" dev "[1/2] Python environment"
system_packages "${sections[@]}"
export PATH="$PWD/.venv/bin:$PATH" PYTHONPATH="$PWD"
# an installed agent has its bytecode, too: compiling all modules is half of the CPU time of a start
unset PYTHONDONTWRITEBYTECODE
chosen=("$@")
results=()
failures=()
failed=0
mkdir -p build
note() { # SECTION EXIT-STATUS SECONDS
    local result=passed
    [ "$2" -eq 0 ] || { result=FAILED && failed=1 && failures+=("$1"); }
    results+=("$(printf '%-12s %-7s %4d s' "$1" "$result" "$3")")
}

# Sections that need only processors run in the background beside contract, integration, cluster and
# nodes, which leave a third of them idle. The scheduler's class "idle" takes nothing from a process that
# measures time.
beside=()
start_beside() { # SECTION …
    local section
    for section; do
        rm -f "build/$section".{log,result}
    done
    (
        chrt --idle --pid 0 "$BASHPID"
        # a bound of wall time means nothing for who waits for idle processors
        export PYTEST_ADDOPTS="${PYTEST_ADDOPTS:-} -o timeout=1800"
        for section; do
            begin=$SECONDS code=0
            run_section "$section" >"build/$section.log" 2>&1 || code=$?
            echo "$code $((SECONDS - begin))" >"build/$section.result"
        done
    ) &
    beside+=("$!:$*")
}
finish_beside() {
    local each section code seconds
    for each in "${beside[@]}"; do
        wait "${each%%:*}" || true
        for section in ${each#*:}; do
            printf '\n=== %s ===\n' "$section"
            code=1 seconds=0
            cat "build/$section.log" && read -r code seconds <"build/$section.result" || true
            note "$section" "$code" "$seconds"
        done
    done
    beside=()
}

# Wait until a section that was started beside others has ended.
await_beside() { # SECTION
    local each
    for each in "${beside[@]}"; do
        [[ " ${each#*:} " == *" $1 "* ]] || continue
        while [ ! -e "build/$1.result" ] && kill -0 "${each%%:*}" 2>/dev/null; do
            sleep 1
        done
    done
}

later=() parallel=()
start_later() {
    [ ${#later[@]} -eq 0 ] || start_beside "${later[@]}"
    [ ${#parallel[@]} -eq 0 ] || start_beside "${parallel[@]}"
    later=() parallel=()
}

if [[ " ${sections[*]} " == *" lint "* && " ${sections[*]} " == *" integration "* ]]; then
    later+=(prose)
fi
# Leave out a default section that this machine cannot run, whose CHECK says why with exit code 3;
# prepare it in the background where it can.
optional() { # SECTION PREPARATION CHECK …
    local section="$1" preparation="$2" code=0 why kept=() each
    shift 2
    if [[ " ${chosen[*]}" == *" tests/"* && " ${chosen[*]}" != *" tests/$section"* ]]; then
        return 0
    fi
    why=$("$@") || code=$?
    case "$code" in
    0) later+=("$preparation") ;;
    3)
        for each in "${sections[@]}"; do
            [ "$each" = "$section" ] || kept+=("$each")
        done
        sections=("${kept[@]}")
        results+=("$(printf '%-12s not run: %s' "$section" "$why")")
        echo "${results[-1]}"
        ;;
    *) exit 1 ;;
    esac
}
if $by_default; then
    optional cluster control-plane python -m tools.control_plane check
    optional nodes node-image python -m tools.lab.prepare check
fi
declare -A prepared_by=([cluster]=control-plane [nodes]=node-image)
for section in "${sections[@]}"; do
    code=0
    case "$section" in
    types | wheel | sim | lowest | fuzz)
        if [[ " ${sections[*]} " == *" integration "* ]]; then
            case "$section" in
            types) later+=("$section") ;;                 # one process
            wheel) later=("$section" "${later[@]}") ;; # first: it reads the checkout
            *) parallel+=("$section") ;;
            esac
            continue
        fi
        ;;
    contract | integration | cluster | nodes)
        start_later
        await_beside "${prepared_by[$section]:-}"
        ;;
    esac
    printf '\n=== %s ===\n' "$section"
    begin=$SECONDS
    if [ -t 1 ]; then
        run_section "$section" || code=$?
    else
        run_section "$section" 2>&1 | tee "build/$section.log" || code=$?
    fi
    note "$section" "$code" $((SECONDS - begin))
done
start_later # what is named after integration
finish_beside
printf '\n=== summary (%d s) ===\n' "$SECONDS"
printf '%s\n' "${results[@]}"
# again at the end, since whoever reads a long log has the end of it
for section in "${failures[@]}"; do
    [ ! -e "build/$section.log" ] || grep -E '^(FAILED|ERROR|SKIPPED,|E  ) ' "build/$section.log" | tail -n 40 || true
done
exit "$failed"
