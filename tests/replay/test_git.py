"""The history of a repository as a trace."""

import subprocess
from pathlib import Path

import pytest

from interlock.replay.trace import TraceError, read_git


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, isolated from the user's own settings."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "n")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "n@example.org")
        monkeypatch.setenv(f"GIT_{role}_DATE", "1700000000 +0000")
    folder = tmp_path / "history"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def commit(folder: Path, **files: str) -> None:
    for name, content in files.items():
        (folder / name).write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "commit-0 with\n\nlines")


def test_commits_are_read_oldest_first_with_their_files_as_keys(repository: Path) -> None:
    commit(repository, a="1", b="1")
    commit(repository, a="2")
    commit(repository)
    trace = read_git(repository)
    assert trace.name == "history"
    assert [message.keys for message in trace.messages] == [("a", "b"), ("a",), ()]
    assert [len(message.id) for message in trace.messages] == [12, 12, 12]
    assert trace.messages[0].time == 1700000000


def test_a_moved_file_is_two_keys_and_a_deleted_one_is_one(repository: Path) -> None:
    commit(repository, a="same content\n" * 20)
    git(repository, "mv", "a", "b")
    commit(repository)
    git(repository, "rm", "-q", "b")
    commit(repository)
    assert [message.keys for message in read_git(repository).messages] == [
        ("a",),
        ("a", "b"),
        ("b",),
    ]


def test_merges_are_left_out(repository: Path) -> None:
    commit(repository, a="1")
    git(repository, "checkout", "-q", "-b", "side")
    commit(repository, b="1")
    git(repository, "checkout", "-q", "main")
    commit(repository, c="1")
    git(repository, "merge", "-q", "--no-ff", "-m", "merge", "side")
    assert len(read_git(repository).messages) == 3


@pytest.mark.parametrize(
    "name", ["with space", "ünïcode", "tab\there", "line\nbreak", "-dash", '"quoted"', "commit-0"]
)
def test_any_file_name_is_a_key_as_it_is(repository: Path, name: str) -> None:
    commit(repository, **{name: "1"})
    assert read_git(repository).messages[0].keys == (name,)


def test_a_file_name_that_is_not_utf_8_is_escaped(repository: Path) -> None:
    try:
        (repository / "caf\udce9").write_text("1")
    except (OSError, UnicodeError):
        pytest.skip("this file system takes UTF-8 names only")
    commit(repository)
    assert read_git(repository).messages[0].keys == ("caf\\xe9",)


def test_a_path_longer_than_a_key_is_replaced_by_its_hash(repository: Path) -> None:
    folder = repository / Path(*["f" * 250] * 5)
    folder.mkdir(parents=True)
    (folder / "a").write_text("1")
    commit(repository)
    assert [len(key) for key in read_git(repository).messages[0].keys] == [32]


def test_a_commit_of_more_files_than_a_message_has_keys_is_refused_or_skipped(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.replay.trace.MOST_KEYS", 2)
    commit(repository, a="1", b="1", c="1")
    commit(repository, a="2")
    with pytest.raises(TraceError, match=r"commit [0-9a-f]{12}: 3 keys; allowed: at most 2"):
        read_git(repository)
    trace = read_git(repository, skip_bad=True)
    assert [message.keys for message in trace.messages] == [("a",)]
    assert len(trace.skipped) == 1


def test_a_limit_ends_git_early_and_leaves_no_process(repository: Path) -> None:
    for number in range(5):
        commit(repository, a=str(number))
    assert len(read_git(repository, limit=2).messages) == 2


def test_git_settings_of_the_user_do_not_change_the_trace(repository: Path) -> None:
    commit(repository, a="1")
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "color.ui", "always")
    git(repository, "config", "diff.relative", "true")
    (repository / "sub").mkdir()
    (repository / "sub" / "b").write_text("1")
    commit(repository)
    assert [message.keys for message in read_git(repository / "sub").messages] == [
        ("a",),
        ("sub/b",),
    ]


def test_a_folder_that_is_not_a_repository_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=rf"{tmp_path}: fatal: not a git repository"):
        read_git(tmp_path)


def test_a_repository_without_a_commit_is_named(repository: Path) -> None:
    with pytest.raises(TraceError, match="does not have any commits yet"):
        read_git(repository)


def test_without_git_the_error_says_what_is_missing(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="git"):
        read_git(repository)
