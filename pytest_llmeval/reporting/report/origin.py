"""The origin of a report: commit, branch and state of its folder, the run of a CI service, and the user's labels.

All of it is a help for readers, and decides nothing: what cannot be found out is left out, and no secret is in it.
"""

from __future__ import annotations

import os
import re
import string
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from pytest_llmeval.errors import OptionError
from pytest_llmeval.text.redaction import is_secret_name, is_secret_value, one_line, redact

__all__ = ["ReportOrigin", "find_origin", "parse_label"]

_MAX_SECONDS = 5.0
"""The time for all questions to git: a large tree on a slow disk leaves the answers out."""
_MAX_CHARACTERS = 500
_MAX_LABEL = 200
_LABEL_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOrigin:
    """The origin of a report, as far as it is known; texts hold no secrets.

    ``commit`` is the whole hash of what was checked out, or else the one that the CI service names. ``is_dirty``: files
    that git knows had changes that are in no commit. ``run`` is the address of the CI service's run, ``pull_request``
    the number or the address of its pull or merge request. ``labels`` are the user's own.
    """

    commit: str | None = None
    branch: str | None = None
    is_dirty: bool | None = None
    run: str | None = None
    pull_request: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def common(cls, origins: Sequence[ReportOrigin | None]) -> ReportOrigin | None:
        """Return what all of several origins have in common, of parts of one run; None if there is nothing."""
        known = [origin for origin in origins if origin is not None]
        if not known or len(known) < len(origins):
            return None
        values = {
            name: getattr(known[0], name)
            for name in (one.name for one in fields(cls) if one.name != "labels")
            if len({getattr(origin, name) for origin in known}) == 1
        }
        first, *others = (origin.labels for origin in known)
        labels = {key: value for key, value in first.items() if all(one.get(key) == value for one in others)}
        found = cls(**values, labels=labels)
        return None if found == cls() else found

    def described_commit(self) -> str | None:
        """Return the beginning of the commit's hash, with a ``+`` if there were changes; None without a commit."""
        return None if self.commit is None else f"{self.commit[:10]}{'+' if self.is_dirty else ''}"

    def texts(self) -> list[str]:
        """Return what is known in a few words each, not yet ``printable``."""
        state = " with changes that are in no commit" if self.is_dirty else ""
        found = {
            "commit": None if self.commit is None else f"{self.commit[:10]}{state}",
            "branch": self.branch,
            "pull request": self.pull_request,
            "run": self.run,
            **self.labels,
        }
        return [f"{name} {value}" for name, value in found.items() if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """A CI service: the variable that says that it runs, and where it says the rest.

    These are templates of variables; the first counts of which all variables are there.
    """

    marker_variable: str
    run: tuple[str, ...]
    pull_request: tuple[str, ...]
    branch: tuple[str, ...]
    commit: tuple[str, ...]


_SERVICES = (
    _Service(
        marker_variable="GITHUB_ACTIONS",
        run=("{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}",),
        pull_request=("{GITHUB_REF}",),
        branch=("{GITHUB_HEAD_REF}", "{GITHUB_REF}"),
        commit=("{GITHUB_SHA}",),
    ),
    _Service(
        marker_variable="GITLAB_CI",
        run=("{CI_JOB_URL}", "{CI_PIPELINE_URL}"),
        pull_request=("{CI_MERGE_REQUEST_IID}",),
        branch=("{CI_MERGE_REQUEST_SOURCE_BRANCH_NAME}", "{CI_COMMIT_BRANCH}"),
        commit=("{CI_COMMIT_SHA}",),
    ),
    _Service(
        marker_variable="TF_BUILD",  # Azure Pipelines
        run=("{SYSTEM_COLLECTIONURI}{SYSTEM_TEAMPROJECT}/_build/results?buildId={BUILD_BUILDID}",),
        pull_request=("{SYSTEM_PULLREQUEST_PULLREQUESTNUMBER}", "{SYSTEM_PULLREQUEST_PULLREQUESTID}"),
        branch=("{SYSTEM_PULLREQUEST_SOURCEBRANCH}", "{BUILD_SOURCEBRANCH}"),
        commit=("{BUILD_SOURCEVERSION}",),
    ),
    _Service(
        marker_variable="BITBUCKET_BUILD_NUMBER",
        run=("{BITBUCKET_GIT_HTTP_ORIGIN}/pipelines/results/{BITBUCKET_BUILD_NUMBER}",),
        pull_request=("{BITBUCKET_PR_ID}",),
        branch=("{BITBUCKET_BRANCH}",),
        commit=("{BITBUCKET_COMMIT}",),
    ),
    _Service(
        marker_variable="BUILDKITE",
        run=("{BUILDKITE_BUILD_URL}",),
        pull_request=("{BUILDKITE_PULL_REQUEST}",),
        branch=("{BUILDKITE_BRANCH}",),
        commit=("{BUILDKITE_COMMIT}",),
    ),
    _Service(
        marker_variable="CIRCLECI",
        run=("{CIRCLE_BUILD_URL}",),
        pull_request=("{CIRCLE_PULL_REQUEST}",),
        branch=("{CIRCLE_BRANCH}",),
        commit=("{CIRCLE_SHA1}",),
    ),
    _Service(
        marker_variable="TRAVIS",
        run=("{TRAVIS_JOB_WEB_URL}", "{TRAVIS_BUILD_WEB_URL}"),
        pull_request=("{TRAVIS_PULL_REQUEST}",),
        branch=("{TRAVIS_PULL_REQUEST_BRANCH}", "{TRAVIS_BRANCH}"),
        commit=("{TRAVIS_COMMIT}",),
    ),
    _Service(
        marker_variable="DRONE",
        run=("{DRONE_BUILD_LINK}",),
        pull_request=("{DRONE_PULL_REQUEST}",),
        branch=("{DRONE_SOURCE_BRANCH}", "{DRONE_BRANCH}"),
        commit=("{DRONE_COMMIT_SHA}",),
    ),
    _Service(
        marker_variable="CI_PIPELINE_FORGE_URL",  # Woodpecker
        run=("{CI_PIPELINE_URL}",),
        pull_request=("{CI_COMMIT_PULL_REQUEST}",),
        branch=("{CI_COMMIT_SOURCE_BRANCH}", "{CI_COMMIT_BRANCH}"),
        commit=("{CI_COMMIT_SHA}",),
    ),
    _Service(
        marker_variable="JENKINS_URL",
        run=("{BUILD_URL}",),
        pull_request=("{CHANGE_ID}",),
        branch=("{CHANGE_BRANCH}", "{BRANCH_NAME}", "refs/remotes/{GIT_BRANCH}"),
        commit=("{GIT_COMMIT}",),
    ),
)
_PULL_REF = re.compile(r"refs/(?:pull|pull-requests|merge-requests)/([0-9]+)(?:/.*)?")
_HASH = re.compile(r"[0-9a-f]{7,64}")


def find_origin(folder: Path, labels: Mapping[str, str], environ: Mapping[str, str] | None = None) -> ReportOrigin:
    """Return the origin of a report of tests in ``folder``, in a few seconds at most, whatever git does.

    git says which commit is checked out; where it does not, a CI service's variables do. They name the branch, since CI
    services check out a commit and no branch, and the run and pull request.
    """
    variables = os.environ if environ is None else environ
    services = (one for one in _SERVICES if variables.get(one.marker_variable, "").lower() not in ("", "false"))
    service = next(services, None)

    def told(templates: Sequence[str]) -> str | None:
        return next((text for one in templates if (text := _filled(one, variables))), None)

    commit, branch, is_dirty = _asked_git(folder)
    run = pull_request = None
    if service is not None:
        found = told(service.commit)
        commit = commit or (found if found is not None and _HASH.fullmatch(found) else None)
        branch = _branch(told(service.branch)) or branch
        run, pull_request = told(service.run), _pull_request(told(service.pull_request))
    return ReportOrigin(
        commit=commit,
        branch=_shown(branch),
        is_dirty=is_dirty,
        run=_shown(run),
        pull_request=_shown(pull_request),
        labels=dict(labels),
    )


def _filled(template: str, variables: Mapping[str, str]) -> str | None:
    names = [name for _, name, _, _ in string.Formatter().parse(template) if name]
    values = {name: variables.get(name, "").strip() for name in names}
    return template.format(**values) if all(values.values()) else None


def _branch(ref: str | None) -> str | None:
    """Return a branch without ``refs/heads/``, or without its remote's name; None for a tag or a pull request."""
    if ref is None or not ref.startswith("refs/"):
        return ref
    if ref.startswith("refs/remotes/"):
        remote, slash, branch = ref.removeprefix("refs/remotes/").partition("/")
        return branch if slash else remote
    return ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None


def _pull_request(text: str | None) -> str | None:
    """Return the number or address of a pull request, from that or from its ref; None for ``false`` and other refs."""
    if text is None or text.lower() == "false":
        return None
    if text.startswith("refs/"):
        found = _PULL_REF.fullmatch(text)
        return None if found is None else found[1]
    return text


def _shown(text: str | None) -> str | None:
    return None if text is None else one_line(text, _MAX_CHARACTERS)


def _asked_git(folder: Path) -> tuple[str | None, str | None, bool | None]:
    """Return commit, branch, and whether tracked files have changes, each None where git does not say it in time."""
    end = time.monotonic() + _MAX_SECONDS
    commit = _git(folder, end, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit or not _HASH.fullmatch(commit):
        return None, None, None
    branch = _git(folder, end, "symbolic-ref", "--quiet", "--short", "HEAD")
    # Files that git does not know do not count, as for `git describe --dirty`: reports often are such.
    changes = _git(folder, end, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    return commit, branch or None, None if changes is None else bool(changes)


def _git(folder: Path, end: float, *arguments: str) -> str | None:
    """Return what git writes, or None if there is none, if it fails, or if it is not done at ``end``."""
    import subprocess

    # git neither writes the index nor runs a program that the repository's settings name to watch files.
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=max(0.01, end - time.monotonic()),
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


def parse_label(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``. Raise ``ValueError`` for another form, and ``OptionError`` for a label with a secret."""
    key, equals, value = (part.strip() for part in text.partition("="))
    is_label = _LABEL_KEY.fullmatch(key) is not None and bool(equals)
    if is_label and _holds_secret(key, value):
        raise OptionError(
            f"--llm-label {redact(key)}=…: it seems to hold a secret, and a report is for everybody to read; leave it "
            "out"
        )
    if not is_label or not value:
        form = "expected KEY=VALUE, with a key of letters, digits, '.', '_' and '-', such as team=search"
        raise ValueError(f"found {redact(text)!r}, {form}")
    if not value.isprintable() or len(value) > _MAX_LABEL:
        raise ValueError(f"found a value of {key!r} that is not one line of {_MAX_LABEL} characters at most")
    return key, value


def _holds_secret(key: str, value: str) -> bool:
    return redact(f"{key}={value}") != f"{key}={value}" or (is_secret_name(key) and is_secret_value(value, key))
