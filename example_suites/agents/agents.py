"""A crew of CrewAI as a model, with and without planning.

In this folder: pytest --llm-model 'python:agents:crew?base_url=http://localhost:8000/v1&model=NAME' …; see README.md
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable
from typing import Any

# CrewAI reads these when it is imported. Nothing is told to anybody but the server that is asked, nothing is asked of
# the person at the terminal, and what is stored lies in a folder that ends with the process. A home of its own while it
# is imported: it would make a key and folders in the real one, and look there for a login.
_FOLDER = tempfile.mkdtemp(prefix="crewai-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
os.environ.update(
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_DISABLE_TRACKING="true",
    OTEL_SDK_DISABLED="true",
    CREWAI_TRACING_ENABLED="false",
    CREWAI_DISABLE_VERSION_CHECK="true",
    CREWAI_STORAGE_DIR=_FOLDER,
)
_HOME = os.environ.get("HOME")
os.environ["HOME"] = _FOLDER
try:
    # Else a file among the temporary ones for each lock, or Redis where the environment names one. What is locked is
    # this process's own.
    from crewai_core.lock_store import set_lock_backend

    _LOCK = threading.RLock()
    set_lock_backend(lambda name, timeout: _LOCK)

    from crewai import LLM, Agent, Crew, Task
    from crewai.agents.agent_executor import AgentExecutor
finally:
    os.environ.pop("HOME")
    if _HOME is not None:
        os.environ["HOME"] = _HOME


def _filled(prompt: str, inputs: dict[str, str]) -> str:
    """All at once. CrewAI fills one after the other, and would take ``{tools}`` in a question for a place to fill."""
    return re.sub(r"\{(input|tool_names|tools)\}", lambda place: inputs[place[1]], prompt)


AgentExecutor._format_prompt = staticmethod(_filled)

# What CrewAI logs of a call that failed it raises too, and there a server's word can hold the key.
logging.getLogger("crewai").setLevel(logging.CRITICAL)
logging.getLogger().addFilter(lambda record: f"{os.sep}crewai{os.sep}" not in record.pathname)

__all__ = ["crew"]

_TASK = "Solve this:\n\n{question}"
"""CrewAI puts the question in the place of its name: an f-string would have it read braces in the question as names."""


def crew(
    planning: bool = False,
    base_url: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    temperature: float = 0.0,
) -> Callable[[str], Awaitable[dict[str, Any]]]:
    """A function that has a crew answer a question. ``planning``: the crew makes a plan first, by a call of its own.

    Any server that speaks as OpenAI's does: ``base_url`` or ``OPENAI_BASE_URL``, ``model`` or ``OPENAI_MODEL_NAME``,
    and where it asks for a key ``api_key`` or ``OPENAI_API_KEY``.
    """
    base_url = base_url or os.environ.get("OPENAI_BASE_URL")
    model = model or os.environ.get("OPENAI_MODEL_NAME")
    if not base_url or not model:
        raise ValueError(
            "which server, and which model? python:agents:crew?base_url=http://localhost:8000/v1&model=NAME, or the "
            "environment variables OPENAI_BASE_URL and OPENAI_MODEL_NAME"
        )
    key = api_key or os.environ.get("OPENAI_API_KEY") or "none"  # a server of one's own asks for none

    async def answer(prompt: str) -> dict[str, Any]:
        # Made anew for each question: a model counts its tokens, a task keeps its output, a plan is added to a task.
        llm = LLM(model=model, custom_openai=True, base_url=base_url, api_key=key, temperature=temperature)
        solver = Agent(
            role="Solver",
            goal="Give the right answer, in the form that is asked for",
            backstory="You work step by step, and check a result before you give it.",
            llm=llm,
            allow_delegation=False,
        )
        task = Task(description=_TASK, expected_output="The answer, in the form that is asked for.", agent=solver)
        # Without planning_llm the plan would be asked of a hosted model.
        team = Crew(agents=[solver], tasks=[task], planning=planning, planning_llm=llm, memory=False, tracing=False)
        result = await team.kickoff_async(inputs={"question": prompt})
        plan = task.description.removeprefix(_TASK.replace("{question}", prompt))
        # Of the model and not of the crew, which counts those of a model once for each agent that has it.
        usage = llm.get_token_usage_summary()
        return {
            "text": result.raw,
            "num_prompt_tokens": usage.prompt_tokens,
            "num_tokens": usage.completion_tokens,
            "trace": [
                *([{"plan": plan}] if plan else []),
                *({"agent": output.agent, "output": output.raw} for output in result.tasks_output),
            ],
        }

    return answer
