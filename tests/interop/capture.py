"""Captures of our device: what tshark says of them, and the part that belongs to a cell."""

import datetime
import shutil
import subprocess

# Payload here is noise, which dissectors of what usually travels over RDMA must not guess at.
NO_GUESSING = ["-o", "infiniband.identify_payload:FALSE"]
for guesser in ("smc", "smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser", "infiniband_sdp", "infiniband.eoib"):
    NO_GUESSING += ["--disable-protocol", guesser]
CHECKSUMS = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
OUTBOUND = "frame.packet_flags_direction == 2"
WRONG = (
    '_ws.malformed || _ws.expert.severity >= "Warning" || ip.checksum.status == "Bad" || udp.checksum.status == "Bad"'
)
COMPLAINTS_SHOWN = 5


def missing():
    """The programs that this needs and the machine does not have."""
    return [program for program in ("tshark", "editcap") if not shutil.which(program)]


def complaints(path):
    """What tshark finds wrong with frames that we sent."""
    argv = ["tshark", "-n", "-r", str(path), *CHECKSUMS, *NO_GUESSING]
    argv += ["-Y", f"{OUTBOUND} && ({WRONG})", "-T", "fields", "-e", "frame.number", "-e", "_ws.expert.message"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return [done.stderr.strip()]
    return [f"frame {line}" for line in done.stdout.splitlines()[:COMPLAINTS_SHOWN]]


def cut(path, begun, ended, target):
    """Copy what was captured between two moments (seconds since 1970), with a little before and after."""
    argv = ["editcap", "-A", _moment(begun - 0.05), "-B", _moment(ended + 0.05), str(path), str(target)]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)


def _moment(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
