"""A Slurm of one node, on loopback, with everything of its own: key, socket, ports, configuration, state."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from ipulaunch.launcher.supervise.processes import die_with_parent

TOOLS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
SEARCHED = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])  # daemons; only root has it on its PATH
SLOW_S = 600  # bounds a hang
_NOT_OURS = ("IPULAUNCH_", "_IPULAUNCH_", "SLURM_", "SBATCH_", "OMPI_", "POPDIST_", "POPLAR_", "OMP_NUM_THREADS")
# Only 127.0.0.1 is listened on, and there is no accounting, as on many small clusters. Slurm believes in four cores
# also where there are two. It is patient: a busy machine neither loses a job nor ends or forgets it too early.
CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket={home}/munge/socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=300
MessageTimeout=60
BatchStartTimeout=120
MinJobAge=3600
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """The daemons, and the commands that talk to them."""

    def __init__(self, home: Path, tracking: str) -> None:
        self.home, self.tracking = home, tracking
        self.host = socket.gethostname().partition(".")[0]
        self.configuration = home / "slurm.conf"
        self.daemons: List[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        controller_port, node_port = _free_ports(2)
        for name in ("munge", "state", "spool"):
            (self.home / name).mkdir()
            (self.home / name).chmod(0o755)  # whatever the umask is
        text = CONFIGURATION.format(
            host=self.host,
            controller_port=controller_port,
            node_port=node_port,
            home=self.home,
            user=pwd.getpwuid(os.geteuid()).pw_name,
            tracking=self.tracking,
            cores=max(4, len(os.sched_getaffinity(0))),
        )
        self.configuration.write_text(text)
        munge = self.home / "munge"
        self.ask("mungekey", "--create", f"--keyfile={munge}/key")
        self._daemon(
            "munged", "--foreground", f"--key-file={munge}/key", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--seed-file={munge}/seed", f"--log-file={munge}/log",
        )  # fmt: skip
        wait_until(lambda: (munge / "socket").exists(), SLOW_S, self.explain)
        self._daemon("slurmctld", "-D", "-f", str(self.configuration))
        self._daemon("slurmd", "-D", "-f", str(self.configuration))
        wait_until(lambda: self.answer("sinfo", "--noheader", "--format=%T").strip() == "idle", SLOW_S, self.explain)

    def stop(self) -> None:
        """End the jobs, then the daemons, each by its id; whatever was started is gone."""
        try:
            self.ask("scancel", "--signal=KILL", "--full", "--state=RUNNING", f"--user={os.geteuid()}")
            self.ask("scancel", f"--user={os.geteuid()}")
            wait_until(lambda: not self.processes() and self.has_left_the_node("*"), SLOW_S, self.explain)
        finally:
            for daemon in reversed(self.daemons):
                daemon.terminate()
                try:
                    daemon.wait(60)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()

    def ask(self, *argv: str) -> str:
        """What a command of this cluster prints."""
        done = self._run(*argv)
        assert done.returncode == 0, f"{argv} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    def answer(self, *argv: str) -> str:
        """The same, or nothing while the cluster does not answer: it may not be up yet, or busy."""
        done = self._run(*argv)
        return "" if done.returncode else done.stdout

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=self.environ, capture_output=True, text=True, timeout=SLOW_S, check=False)

    @property
    def environ(self) -> Dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
        return {**kept, "PATH": SEARCHED, "SLURM_CONF": str(self.configuration)}

    def processes(self, job: str = "") -> List[int]:
        """The living processes of a job, or of all: they were born with its number in their environment."""
        mark = f"SLURM_JOB_ID={job}".encode()
        ours = f"SLURM_CONF={self.configuration}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it has just ended
                    names = (entry / "environ").read_bytes().split(b"\0")
                    if ours in names and any(name == mark or (not job and name.startswith(mark)) for name in names):
                        found.append(int(entry.name))
        return found

    def has_left_the_node(self, job: str) -> bool:
        """Whether Slurm's own process for the job has ended as well, and all that it had to say has been said."""
        return not list((self.home / "spool").glob(f"{self.host}_{job}.*"))  # its sockets

    def explain(self) -> str:
        """The last words of the daemons, for a test that waited in vain."""
        logs = [*self.home.glob("*.log"), self.home / "munge" / "log"]
        return "\n".join(f"{path}:\n" + path.read_text()[-3000:] for path in logs if path.exists())

    def _daemon(self, *argv: str) -> None:
        with (self.home / f"{argv[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                argv, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        self.daemons.append(process)


def wait_until(holds: Callable[[], bool], seconds: float, explain: Callable[[], str]) -> None:
    """Wait for something that another process brings about; what `explain` says is shown if it does not."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s\n{explain()}"
        time.sleep(0.2)


def _free_ports(count: int) -> List[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(scope="session")
def wait() -> Callable[..., None]:
    """Waits until something holds."""
    return wait_until


@pytest.fixture(scope="session")
def make_cluster() -> Iterator[Callable[[str], Any]]:
    """The cluster that tracks the processes of jobs in a given way; one of each kind, started when first asked for."""
    missing = [name for name in TOOLS if shutil.which(name, path=SEARCHED) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here: .ci/install-slurm")
    clusters: Dict[str, Cluster] = {}
    with contextlib.ExitStack() as stack:

        def make(tracking: str) -> Cluster:
            if tracking not in clusters:
                # Not below pytest's own directory: the path of a socket has 107 letters at most.
                home = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
                stack.callback(shutil.rmtree, home, ignore_errors=True)  # Slurm may still be at it
                home.chmod(0o755)  # munge refuses a socket that not everybody can reach
                cluster = Cluster(home, tracking)
                stack.callback(cluster.stop)
                cluster.start()
                clusters[tracking] = cluster
            return clusters[tracking]

        yield make
