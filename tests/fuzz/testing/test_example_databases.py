"""State machines with the profiles of Hypothesis and its databases of examples: what failed is tried first."""

import shutil
import subprocess
import time
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow
CONFTEST = """
from hypothesis import HealthCheck, Phase, settings
{imports}

finds = settings(
    database={database}, max_examples=300, stateful_step_count=20, deadline=None, derandomize=False,
    suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
settings.register_profile("finds", finds)
settings.register_profile("remembers", finds, phases=[Phase.explicit, Phase.reuse])
"""
TEST = """
from blockproof.fuzz import kv_cache_machine
from hypothesis import settings

TestSound = kv_cache_machine("impl", attention=("full",)).TestCase
TestSound.settings = settings(TestSound.settings, max_examples=2, phases=settings().phases)
TestFaulty = kv_cache_machine("fault:free-order-reversed", attention=("full",)).TestCase
TestFaulty.settings = settings(TestFaulty.settings, phases=settings().phases)
"""
"""A core without a fault, and one with: what is remembered of one must not be forgotten for the other."""
FOUND = "*model and target differ in `free` at operation *"


class Suite:
    """Tests of a state machine that pytest runs in a process of its own, with a profile."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.path = pytester.path

    def write(self, database: str, imports: str) -> None:
        """State machines, and profiles with this database."""
        self._pytester.makeconftest(CONFTEST.format(database=database, imports=imports))
        self._pytester.makepyfile(test_core=TEST)

    def run(self, profile: str, *, found: bool) -> None:
        """Run the tests with this profile; `found`: the fault must show."""
        words = ("-p", "no:cacheprovider", f"--hypothesis-profile={profile}", "test_core.py")
        done = self._pytester.runpytest_subprocess(*words, timeout=200)
        assert done.parseoutcomes().get("failed", 0) == found  # what draws nothing is skipped
        assert "errors" not in done.parseoutcomes()
        if found:
            done.stdout.fnmatch_lines([FOUND])


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A suite of its own for each test, which does not think that it runs in CI."""
    for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD"):
        monkeypatch.delenv(name, raising=False)
    return Suite(pytester)


def test_a_folder_remembers_what_failed(suite):
    imports = "from hypothesis.database import DirectoryBasedExampleDatabase"
    suite.write("DirectoryBasedExampleDatabase('examples')", imports)
    suite.run("remembers", found=False)  # there is nothing yet, and nothing is drawn
    suite.run("finds", found=True)
    suite.run("remembers", found=True)
    suite.run("remembers", found=True)


def test_an_artifact_of_ci_is_read_and_never_written(suite):
    """The artifact as GitHub hands it out; it is fresh in Hypothesis' folder of artifacts, so that nobody is asked."""
    imports = "from hypothesis.database import DirectoryBasedExampleDatabase"
    suite.write("DirectoryBasedExampleDatabase('examples')", imports)
    suite.run("finds", found=True)
    artifacts = suite.path / "artifacts"
    artifacts.mkdir()
    artifact = artifacts / f"{datetime.now(UTC).isoformat().replace(':', '_')}.zip"
    with zipfile.ZipFile(artifact, "w") as packed:
        for path in sorted((suite.path / "examples").rglob("*")):
            packed.write(path, path.relative_to(suite.path / "examples"))
    shutil.rmtree(suite.path / "examples")
    before = artifact.read_bytes()
    imports = "from hypothesis.database import GitHubArtifactDatabase, MultiplexedDatabase, ReadOnlyDatabase\n"
    imports += "from hypothesis.database import InMemoryExampleDatabase"
    shared = "ReadOnlyDatabase(GitHubArtifactDatabase('an-organisation', 'an-engine', path='artifacts'))"
    suite.write(f"MultiplexedDatabase(InMemoryExampleDatabase(), {shared})", imports)
    suite.run("remembers", found=True)
    assert artifact.read_bytes() == before
    artifact.unlink()
    with zipfile.ZipFile(artifact, "w") as packed:
        packed.writestr("nothing/here", b"")
    suite.run("remembers", found=False)


@pytest.fixture
def redis_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a Redis server, which ends with the test."""
    redis = pytest.importorskip("redis", reason="the module redis is not installed (extra `test`)")
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("there is no redis-server (apt-get install redis-server)")
    folder = tmp_path_factory.mktemp("redis")
    socket = folder / "socket"
    words = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", "", "--appendonly", "no"]
    running = subprocess.Popen([server, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        client = redis.Redis(unix_socket_path=str(socket))
        deadline = time.monotonic() + 30
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                assert running.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.02)
        yield socket
        client.close()
    finally:
        running.terminate()
        running.wait(timeout=30)


def test_a_redis_server_remembers_what_failed(suite, redis_socket):
    imports = "import redis\nfrom hypothesis.extra.redis import RedisExampleDatabase"
    suite.write(f"RedisExampleDatabase(redis.Redis(unix_socket_path={str(redis_socket)!r}))", imports)
    suite.run("remembers", found=False)
    suite.run("finds", found=True)
    suite.run("remembers", found=True)
    suite.run("remembers", found=True)
