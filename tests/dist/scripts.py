"""Shell scripts that use the archive at /opt/softrnic, by the name under which they are reported."""

START = """
set -e
cd /tmp
softrnic() { /opt/softrnic/bin/softrnic "$@"; }
"""


def bandwidth(device="udp", address="127.0.0.1", server="", client="", options="-n 1000"):
    """ib_write_bw at both ends, each behind a command that says where it runs. What the server says is shown if it fails."""
    run = f"/opt/softrnic/bin/softrnic run --device '{device}' -- ib_write_bw -p 5555 {options}"
    return START + f"""
        {server} {run} >server 2>&1 &
        until {server} cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ':15B3 [0-9A-F:]* 0A '; do
            kill -0 $! || {{ cat server; exit 1; }}
            sleep 0.05
        done
        {client} {run} {address} || {{ cat server; exit 1; }}
        wait $!"""


# In any container, as an unprivileged user.
ANYWHERE = {
    "softrnic demo": START + "softrnic demo --no-pcap --seconds 1",
    "softrnic doctor": START + "softrnic doctor",
    "ibv_devinfo": START + "softrnic run -- ibv_devinfo | grep PORT_ACTIVE",
    "ib_write_bw": bandwidth(),
    # librdmacm's ports are the device's, so nothing shows that the server listens but a client that reaches it.
    "rping": START + """
        softrnic run -- rping -s -C 3 -p 5555 >server 2>&1 & server=$!
        until softrnic run -- rping -c -a 127.0.0.1 -C 3 -V -p 5555 >client 2>&1; do
            kill -0 $server || { cat server client; exit 1; }
            sleep 0.05
        done
        wait $server""",
    # The page is found beside the command, wherever that is.
    "softrnic playground": START + """
        softrnic playground --port 0 >server 2>&1 &
        until grep -q "is at http" server; do kill -0 $! || { cat server; exit 1; }; sleep 0.05; done
        port=$(sed 's/.*:\\([0-9]*\\).*/\\1/' server)
        bash -c "exec 3<>/dev/tcp/127.0.0.1/$port && printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&3 && cat <&3" >page
        grep -qa '<title>SoftRNIC playground' page
        kill $!""",
    "through a symbolic link": START + """
        ln -s /opt/softrnic/bin/softrnic /tmp/link
        /tmp/link run -- ibv_devices | grep softrnic0""",
}

# On any kernel. The emulated processor is slow.
FEW = "-n 100"
USER = {
    "doctor": ANYWHERE["softrnic doctor"],
    "demo": START + "softrnic demo --no-pcap --seconds 0.1",
    "ibv_devinfo": ANYWHERE["ibv_devinfo"],
    "rping": ANYWHERE["rping"],
    "ib_write_bw, memory": "export SOFTRNIC_LOG=info; exec 2>/tmp/log" + bandwidth(options=FEW) + """
        grep 'through shared memory' /tmp/log""",
    "ib_write_bw, sockets": bandwidth("udp?shm=off", options=FEW),
    "one address": bandwidth("udp:127.0.0.2?shm=off", "127.0.0.2", options=FEW),
}
HOSTS = START + """
    export PATH=$PATH:/usr/sbin:/sbin
    softrnic lab up --mtu 4500 >&2
    trap 'softrnic lab down >&2' EXIT
"""
ROOT = {
    "doctor, eth0": START + "PATH=$PATH:/usr/sbin:/sbin softrnic doctor --interface eth0",
    "xdp": HOSTS + bandwidth("xdp:eth0", "10.77.0.2", "softrnic lab run h2 --", "softrnic lab run h1 --", f"-x 1 {FEW}"),
    "grant": HOSTS + """
        softrnic lab run h1 -- /opt/softrnic/bin/softrnic grant --interface eth0 --user nobody -- \\
            /opt/softrnic/bin/softrnic run --device xdp:eth0 -- ibv_devinfo | grep PORT_ACTIVE""",
}

# As root, with the package at /softrnic.deb: what it installs is used, and goes.
PACKAGE = """
    dpkg -i /softrnic.deb
    softrnic run -- ldd /usr/bin/ibv_devices | grep /usr/lib/softrnic/libibverbs.so.1
    softrnic run -- ibv_devices | grep softrnic0
    ! ldd /usr/bin/ibv_devices | grep softrnic
    dpkg --purge softrnic
    test ! -e /usr/lib/softrnic -a ! -e /usr/bin/softrnic"""
