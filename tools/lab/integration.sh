# Prepares a virtual node for integration tests: `bash -e integration.sh CHECKOUT CACHE SITE`.
# The host's directories are below /run/host; SITE has the Python packages of the image.
checkout="$1" cache="$2" site="$3"

# DIRECTORY: the host's, and what the node writes there
over() {
    local written="/var/lib/over$1"
    mkdir -p "$1" "$written/new" "$written/work"
    mount -t overlay over \
        -o "lowerdir=/run/host$1,upperdir=$written/new,workdir=$written/work" "$1"
}
over "$checkout"
cd "$checkout"
[ -d .cache ] || { rm -f .cache && mkdir .cache; }
over "$cache"

# the environment that test.sh and up.sh make, of the image's packages
rm -rf .venv
python3 -m venv --without-pip .venv
printf '%s\n' "$site" "$checkout" "$checkout/up" >"$(echo .venv/lib/python3*/site-packages)/lab.pth"
printf '#!%s\nfrom kubeletpy.cli.main import main\nraise SystemExit(main())\n' \
    "$checkout/.venv/bin/python" >.venv/bin/kubeletpy
chmod 755 .venv/bin/kubeletpy
cat pyproject.toml up/pyproject.toml up/setup.py kubeletpy/base/version.py requirements/run.txt \
    requirements/dev.txt | sha256sum >.venv/installed-dev

# a node has an address and a default route
ip link add eth0 type veth peer name uplink
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip link set uplink up
ip route add default via 10.0.2.2

# output reaches the host within a second
sysctl -qw vm.dirty_writeback_centisecs=100 vm.dirty_expire_centisecs=100
