# The virtual environment of a checkout, for up.sh and test.sh (sourced by them).

# Run a command that may take long; its output goes to a file that is shown only if it fails.
quietly() {
    local log="$1"
    shift
    if ! "$@" >>"$log" 2>&1; then
        echo "failed" >&2
        echo "\`$*\` failed; the end of $log:" >&2
        tail -n 20 "$log" >&2
        return 1
    fi
}

# Run a command that may take minutes, behind a title: its lines that begin with a verb of pip's are shown,
# on a terminal in the title's own line, all of its output goes to a file, and the end of that if it fails.
showing() { # TITLE LOG COMMAND …
    local title="$1" log="$2"
    shift 2
    [ -t 1 ] || printf '\n'
    if ! (
        set -o pipefail
        "$@" 2>&1 | tee -a "$log" |
            sed -u -n -E 's/^ *((Obtaining|Collecting|Downloading|Building|Installing) .{0,80}).*/\1/p' |
            while IFS= read -r line; do
                if [ -t 1 ]; then
                    printf '\r\033[K%s … %.40s' "$title" "$line"
                else
                    printf '      %s\n' "$line"
                fi
            done
    ); then
        echo "failed" >&2
        echo "\`$*\` failed; the end of $log:" >&2
        tail -n 20 "$log" >&2
        return 1
    fi
    if [ -t 1 ]; then printf '\r\033[K%s … ' "$title"; else printf '      '; fi
}

# Install Debian packages, with fresh package lists if the ones here do not do.
apt_install() {
    local log="$1"
    shift
    export DEBIAN_FRONTEND=noninteractive
    apt-get install --yes --no-install-recommends "$@" >>"$log" 2>&1 && return
    quietly "$log" apt-get update
    quietly "$log" apt-get install --yes --no-install-recommends "$@"
}

# make_venv LOG PYTHON VENV: a virtual environment with pip, where Debian's Python lacks ensurepip, too.
make_venv() {
    local unpacked="$3.pip" wheel
    if "$2" -c 'import ensurepip, venv' 2>/dev/null; then
        quietly "$1" "$2" -m venv --clear "$3"
        return
    fi
    if [ "$(id -u)" -eq 0 ]; then
        printf 'installing python3-venv … '
        apt_install "$1" python3-venv && quietly "$1" "$2" -m venv --clear "$3"
        return
    fi
    mkdir -p "$unpacked" &&
        (cd "$unpacked" && quietly "$1" apt-get download python3-pip-whl && dpkg-deb -x ./*.deb .) &&
        quietly "$1" "$2" -m venv --clear --without-pip "$3" || return
    wheel=$(echo "$unpacked"/usr/share/python-wheels/pip-*.whl)
    quietly "$1" "$3/bin/python" "$wheel/pip" install --no-index "$wheel" && rm -r "$unpacked"
}

# locked_install TITLE LOG VENV LOCK CHECKOUT: install what a lock names, checked by its hashes, and the
# checkout, which setuptools of the lock builds. Its bytecode is made now: the first start is short.
locked_install() {
    local title="$1"
    shift
    local pip=("$2/bin/python" -m pip install --disable-pip-version-check --progress-bar off)
    showing "$title" "$1" "${pip[@]}" --require-hashes --requirement "$3" &&
        quietly "$1" "${pip[@]}" --no-deps --no-build-isolation --editable "$4" --editable "$4/up" &&
        quietly "$1" "$2/bin/python" -m compileall -q -j 0 "$4/kubeletpy" "$4/up/kubeletpy_up"
}

# python_environment CHECKOUT EXTRA TITLE: make CHECKOUT/.venv hold the project and its embedded
# API, with an extra ("" or "dev"); fast when it does already. Safe to run several times at once.
python_environment() {
    local checkout="$1" extra="$2" title="$3"
    local venv="$checkout/.venv" log="$checkout/.cache/install.log"
    local begin=$SECONDS code stamp wanted python=python3 lock="$checkout/requirements/${extra:-run}.txt"
    mkdir -p "$checkout/.cache"
    printf '%s … ' "$title"
    (
        exec 9>"$checkout/.cache/venv.lock"
        flock 9
        code=0
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || code=$?
        [ "$code" -ne 130 ] || exit 130 # interrupted
        if [ "$code" -ne 0 ]; then
            echo "failed" >&2
            echo "Python 3.11 or newer is needed as python3 (Debian 12 has it: apt-get install python3)" >&2
            exit 1
        fi
        stamp="$venv/installed${extra:+-$extra}"
        wanted=$(cd "$checkout" &&
            cat pyproject.toml up/pyproject.toml up/setup.py kubeletpy/base/version.py \
                requirements/run.txt requirements/dev.txt | sha256sum)
        # the development environment has all that a user's has
        [ -x "$venv/bin/python" ] && "$venv/bin/python" -c '' 2>/dev/null &&
            grep -qsxF "$wanted" "$stamp" "$venv/installed-dev" && exit 0
        : >"$log"
        if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
            make_venv "$log" "$python" "$venv" || exit 1
        fi
        locked_install "$title" "$log" "$venv" "$lock" "$checkout" || exit 1
        printf '%s\n' "$wanted" >"$stamp"
    ) || return 1
    printf "ready (%d s)\n" "$((SECONDS - begin))"
}
