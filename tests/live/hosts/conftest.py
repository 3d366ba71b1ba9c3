"""Hosts of their own on one machine: each has its network, name, processes and sshd, and all share the files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List

import pytest

from ipulaunch.launcher.supervise.processes import die_with_parent

TOOLS = ("sshd", "ssh", "ssh-keygen", "ip", "unshare", "nsenter")
SEARCHED = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
SSHD = ("sshd:", "sshd-session:", "sshd-auth:")  # as its processes call themselves, since OpenSSH 9.8 by three names
SLOW_S = 600  # bounds a hang
NAMES = ("login", "a", "b")  # a switch is in the first
# Everything of ssh's is in a directory that lies over /etc/ssh, on these hosts only.
SSH_CONFIG = """\
IdentityFile /etc/ssh/key
IdentitiesOnly yes
UserKnownHostsFile /etc/ssh/known_hosts
"""
SSHD_CONFIG = """\
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
SetEnv TMPDIR=/run/tmp
"""
# What a host does when it is switched on.
BOOT = """\
set -e
hostname "$1"
mount -t tmpfs none /run
mkdir /run/sshd /run/tmp
mount --bind "$2/ssh" /etc/ssh
mount --bind "$2/hosts" /etc/hosts
ip link set lo up
exec "$3" -D -e
"""


class Host:
    """One host: a process that is the first of its own process tree, and with which all others there end."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name
        self.address = f"10.77.0.{1 + NAMES.index(name)}"
        with (network.home / f"{name}.log").open("ab") as log:
            self.outer = subprocess.Popen(
                ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "sh", "-c", BOOT, "sh", name, str(network.home), str(shutil.which("sshd", path=SEARCHED))],
                env=network.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children")
        network.wait(lambda: bool(children.read_text().split()), SLOW_S)
        self.first = int(children.read_text())

    def start(self, *words: str, directory: Path) -> subprocess.Popen[str]:
        """Start a command there."""
        spaces = ["--net", "--uts", "--ipc", "--mount", "--pid"]
        command = ["nsenter", f"--target={self.first}", *spaces, f"--wd={directory}", *words]
        return subprocess.Popen(
            command, env=self.network.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *words: str, directory: Path = Path("/"), seconds: float = 1800) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end."""
        process = self.start(*words, directory=directory)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def ask(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"{words} on {self.name}: {done.stderr}"
        return done.stdout

    def processes(self) -> List[str]:
        """The command lines of what runs there, sshd's own excepted."""
        found = []
        space = os.readlink(f"/proc/{self.first}/ns/pid")
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it has just ended
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if words and os.readlink(entry / "ns" / "pid") == space and not words.startswith(SSHD):
                        found.append(words)
        return found

    def switch_off(self) -> None:
        """Without any warning."""
        os.kill(self.first, signal.SIGKILL)  # the kernel lets it go when all others of its tree are gone
        self.outer.wait(SLOW_S)


class Network:
    """The hosts, and the switch between them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ssh = home / "ssh"
        self.hosts: Dict[str, Host] = {}

    @property
    def environ(self) -> Dict[str, str]:
        """What every user has, and nothing of this test's: neither our Python nor Open MPI are on the PATH."""
        # Open MPI names its files by host and process, and the numbers of processes begin anew on every host.
        own = {"TMPDIR": "/run/tmp"}
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": os.environ.get("HOME", "/root"), **own}

    def build(self) -> None:
        self.ssh.mkdir()
        for name in ("key", "host_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.ssh / name)]
            subprocess.run(command, check=True)
        shutil.copy(self.ssh / "key.pub", self.ssh / "authorized_keys")
        key = " ".join((self.ssh / "host_key.pub").read_text().split()[:2])
        (self.ssh / "known_hosts").write_text("".join(f"{name} {key}\n" for name in NAMES))
        (self.ssh / "ssh_config").write_text(SSH_CONFIG)
        (self.ssh / "sshd_config").write_text(SSHD_CONFIG)
        lines = ["127.0.0.1 localhost", *(f"10.77.0.{1 + index} {name}" for index, name in enumerate(NAMES))]
        (self.home / "hosts").write_text("\n".join(lines) + "\n")
        for name in NAMES:
            self.switch_on(name)

    def switch_on(self, name: str) -> None:
        host = self.hosts[name] = Host(self, name)
        login = self.hosts["login"]
        self.wait(lambda: host.run("hostname").stdout.strip() == name, SLOW_S)
        if host is login:
            card = "switch"
            host.ask("ip", "link", "add", card, "type", "bridge")
        else:
            card, port = "eth0", f"port-{name}"
            # From out here: a host does not know the process of another.
            space = ["nsenter", f"--target={login.first}", "--net"]
            link = ["ip", "link", "add", port, "type", "veth", "peer", "name", card, "netns", str(host.first)]
            # Always the same address of the card, which the others remember while a host is off.
            link += ["address", f"02:00:00:00:00:0{NAMES.index(name)}"]
            subprocess.run([*space, *link], check=True)
            login.ask("ip", "link", "set", port, "master", "switch", "up")
        host.ask("ip", "address", "add", f"{host.address}/24", "dev", card)
        host.ask("ip", "link", "set", card, "up")
        self.wait(lambda: self.reaches(name), SLOW_S)

    def reaches(self, name: str) -> bool:
        words = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", name, "true"]
        return self.hosts["login"].run(*words).returncode == 0

    def cut(self, name: str) -> None:
        """Nothing goes to this host or comes from it any more; on the host itself, all goes on."""
        self.hosts["login"].ask("ip", "link", "set", f"port-{name}", "down")

    def mend(self, name: str) -> None:
        self.hosts["login"].ask("ip", "link", "set", f"port-{name}", "up")
        self.wait(lambda: self.reaches(name), SLOW_S)

    def wait(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait for something that another process brings about."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not within {seconds:g} s\n{self.explain()}"
            time.sleep(0.05)

    def explain(self) -> str:
        logs = [f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.home.glob("*.log")]
        return "\n".join([*logs, *(f"{host.name}: {host.processes()}" for host in self.hosts.values())])

    def switch_off(self) -> None:
        for host in self.hosts.values():
            host.switch_off()


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Three hosts that reach each other by name, over ssh: login, a and b."""
    missing = [name for name in TOOLS if shutil.which(name, path=SEARCHED) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing or TOOLS)}: make test-hosts")
    if subprocess.run(["unshare", "--net", "--pid", "--fork", "true"], check=False, capture_output=True).returncode:
        pytest.skip("namespaces are not allowed here: make test-hosts")
    network = Network(tmp_path_factory.mktemp("network"))
    try:
        network.build()
        yield network
    finally:
        network.switch_off()
