"""A training run: warm start, updates, evaluation, checkpoints. One folder, and a result that anyone can repeat.

    out/
      recipe.json            the recipe as it was run
      metrics.jsonl          one line per update
      trajectories.jsonl     episodes of the updates; eval.jsonl, samples.jsonl: see `record`
      checkpoints/000000/    the warm start; 000010/ ...
      curve.png report.html  what to look at

`train_recipe` starts a run, `resume_run` continues one, `evaluate_run` measures one again.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from toolverse.credit import get
from toolverse.envs.base import derive_seed
from toolverse.errors import InvalidInputError, NotFoundError, ToolverseError
from toolverse.learner import checkpoint
from toolverse.learner.clone import clone
from toolverse.learner.demonstrations import demonstrations, read_chats
from toolverse.learner.distributed import ALONE, World, is_sharded, join
from toolverse.learner.health import alarms
from toolverse.learner.iteration import one_update
from toolverse.learner.models import build_model, equip, open_tokenizer, saved_tokenizer
from toolverse.learner.play import Arena, Success, score_interval
from toolverse.learner.policy import PolicyModel
from toolverse.learner.recipe import Recipe
from toolverse.learner.record import Record
from toolverse.learner.report import write_report
from toolverse.learner.rows import Rows, make_rows
from toolverse.learner.run import CLONE, EXPERT, WEIGHTS, Run
from toolverse.learner.sampler import Demonstrator
from toolverse.rollout.files import reproduction

Progress = Callable[[str], None]
Watcher = Callable[[Mapping[str, Any]], None]
"""Is given the metrics of each update (see `tensorboard`, and the live view of the command line)."""


def train_recipe(
    recipe: Recipe,
    out: Path,
    *,
    stop_after: int | None = None,
    progress: Progress = lambda line: None,
    watchers: Sequence[Watcher] = (),
) -> dict[str, Any]:
    """Run a recipe in a fresh folder.

    Args:
        stop_after: stop after this update, to be resumed later; schedules still span `recipe.updates`.
        progress: gets one line of text per step worth telling. watchers: get the metrics of each update.

    Returns:
        `success_start` and `success_end` on the held-out panel, `interval` (Wilson 95 % of the end) and `interval_start`,
        `score_start` and `score_end` (mean scores: half-right is not nothing), `score_interval` and `score_interval_start`
        (outer bounds of 95 % intervals), `cpu_s` (the whole run, start-up of the process included), and what else the report
        shows.

    Raises:
        InvalidInputError: `out` holds a run already.
        LossDivergedError: see `update`.
    """
    folder = out / "checkpoints"
    if folder.is_dir() and any(folder.glob("[0-9]*")):
        raise InvalidInputError("the folder holds a run", where=str(out), fix="pass --resume, or another --out")
    world = join()
    with clear_memory_errors():
        run = start_run(recipe, out, progress if world.first else _silence, world)
        return _go_on(run, stop_after, progress, watchers)


def resume_run(
    out: Path,
    *,
    stop_after: int | None = None,
    progress: Progress = lambda line: None,
    watchers: Sequence[Watcher] = (),
) -> dict[str, Any]:
    """Continue the run in a folder from its newest whole checkpoint, under its stored recipe; see `train_recipe`.

    Raises:
        NotFoundError: there is no run, or no checkpoint of it is whole.
    """
    with clear_memory_errors():
        return _go_on(load_run(out, join()), stop_after, progress, watchers)


class OutOfMemoryError(ToolverseError, MemoryError):
    """The device has not enough memory for a step; what was written before is intact."""


@contextmanager
def clear_memory_errors() -> Iterator[None]:
    """An allocation that fails inside is told as what the user can change.

    Raises:
        OutOfMemoryError: one did.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # PyTorch has a class of its own for GPUs only.
        on_cpu = "not enough memory" in str(error) or "can't allocate memory" in str(error)
        if (not isinstance(error, torch.OutOfMemoryError | MemoryError) and not on_cpu) or isinstance(
            error, ToolverseError
        ):
            raise
        raise OutOfMemoryError(
            f"out of memory ({str(error).strip().splitlines()[0][:160] if str(error).strip() else 'MemoryError'})",
            where="the run",
            fix="halve update.microbatch_tokens, or set update.recompute = true; then pass --resume. --dry-run says "
            "what takes how much",
        ) from error


def _silence(line: str) -> None:
    return


def _go_on(run: Run, stop_after: int | None, progress: Progress, watchers: Sequence[Watcher]) -> dict[str, Any]:
    recipe, out, first = run.recipe, run.out, run.world.first
    metrics = checkpoint.MetricsFile(out / "metrics.jsonl" if first else None, keep=run.updates_done)
    header = reproduction(purpose="training", recipe=recipe.name, estimator=recipe.credit.estimator, seed=recipe.seed)
    record = Record(out, episodes=recipe.record_episodes if first else 0, keep=run.updates_done, header=header)
    arena = Arena(recipe, held_out=False, width=run.width(len(run.world.share(recipe.episodes, recipe.group_size))))
    panel = Arena(recipe, held_out=True, width=run.width(min(128, recipe.held_out_episodes)))
    last = recipe.updates if stop_after is None else min(stop_after, recipe.updates)
    try:
        while run.updates_done < last:
            line = one_update(run, arena, record)
            number = run.updates_done
            if recipe.evaluate_every and number % recipe.evaluate_every == 0 and number < recipe.updates:
                line["held_out"] = run.measure(panel, recipe.evaluate_episodes, record).rate
            line["cpu_s"] = round(run.cpu_s(), 3)
            line["alarms"] = alarms([*metrics.lines, line])
            metrics.write(line)
            if first:
                progress(_sentence(line))
                for watcher in watchers:
                    watcher(line)
            if number % recipe.checkpoint_every == 0 or number == last:
                run.save()
        end = run.measure(panel, recipe.held_out_episodes, record)
    finally:
        metrics.close()
        arena.close()
        panel.close()
        run.close()
    result = _result(run, end, metrics.lines)
    if first:
        (out / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        write_report(out, recipe, metrics.lines, result)
    return result


def set_threads(count: int) -> None:
    """CPU threads of all computations of this process."""
    torch.set_num_threads(count)


def evaluate_run(out: Path, *, episodes: int | None = None, temperature: float | None = None) -> dict[str, Any]:
    """Success of a run's newest checkpoint on the held-out panel.

    Args:
        episodes: instances of the panel; the recipe's number if None.
        temperature: of sampling, the recipe's if None; 0 takes the likeliest tokens.

    Returns:
        `success`, `interval` (Wilson 95 %), `episodes`, `mean_score`, `mean_turns`, `temperature`, `update`, `cpu_s`.

    Raises:
        NotFoundError: the folder holds no usable checkpoint.
    """
    began = time.process_time()
    run = load_run(out, temperature=temperature)
    count = episodes or run.recipe.held_out_episodes
    panel = Arena(run.recipe, held_out=True, width=run.width(min(128, count)))
    try:
        found = run.measure(panel, count)
    finally:
        panel.close()
        run.close()
    return {
        **_as_json(found),
        "temperature": run.recipe.policy.temperature,
        "update": run.updates_done,
        "cpu_s": round(time.process_time() - began, 3),
    }


# --- starting and continuing ------------------------------------------------------------------------------------------------


def start_run(recipe: Recipe, out: Path, progress: Progress, world: World = ALONE) -> Run:
    """Tokenizer, model, behaviour cloning, first measurement, checkpoint 0."""
    get(recipe.credit.estimator)  # a misspelled name fails before anything is computed
    if world.first:
        out.mkdir(parents=True, exist_ok=True)
        (out / "recipe.json").write_text(recipe.model_dump_json(indent=1), encoding="utf-8")
    tokenizer = open_tokenizer(recipe.policy)
    rows = expert_rows(recipe, tokenizer, progress)
    torch.manual_seed(derive_seed(derive_seed(recipe.seed, WEIGHTS), 0) % 2**63)
    model = equip(build_model(recipe.policy, tokenizer), recipe.update, world)
    if rows is not None and recipe.clone.episodes:
        seed = derive_seed(derive_seed(recipe.seed, CLONE), 0)

        def tell(step: int, steps: int, loss: float) -> None:
            if step % 50 == 0 or step == steps:
                progress(f"cloning {step}/{steps}: {loss:.3f} nats per token")

        clone(
            model,
            rows,
            recipe.clone,
            seed=seed,
            microbatch_tokens=recipe.update.microbatch_tokens,
            progress=tell,
            world=world,
        )
    model.start_critic()
    run = Run(
        recipe,
        out,
        tokenizer,
        model,
        make_optimizer(model, recipe),
        kl_coefficient=recipe.update.kl_coefficient,
        world=world,
    )
    run.reference = _reference(run, model.backbone)
    panel = Arena(recipe, held_out=True, width=run.width(min(128, recipe.held_out_episodes)))
    try:
        run.start = _as_json(run.measure(panel, recipe.held_out_episodes))
    except BaseException:
        run.close()
        raise
    finally:
        panel.close()
    low, high = run.start["interval"]
    progress(f"warm start: {run.start['success']:.1%} on held-out instances ({low:.1%} to {high:.1%})")
    run.save()
    return run


def expert_rows(recipe: Recipe, tokenizer: Any, progress: Progress) -> Rows | None:
    """Rows of expert episodes, or of a chat dataset; an open tokenizer learns its words from them and is frozen afterwards."""
    if not recipe.clone.episodes:
        return None
    if recipe.clone.data:
        chats = read_chats(recipe.clone.data, split=recipe.clone.split, most=recipe.clone.episodes)
        copied = demonstrations(chats, tokenizer)
        progress(f"{recipe.clone.data}: {len(copied)} chats, {sum(len(t.turns) for t in copied)} assistant messages")
        rows = make_rows(copied, tokenizer)
        tokenizer.freeze()
        return rows
    arena = Arena(recipe, held_out=False, width=min(64, recipe.clone.episodes))
    root = derive_seed(recipe.seed, EXPERT)
    expert = Demonstrator(tokenizer, recipe.policy.rendering, template=recipe.prompt.template())
    played = arena.play_many(expert, [derive_seed(root, i) for i in range(recipe.clone.episodes)])
    arena.close()
    solved = [trajectory for trajectory in played if trajectory.success]
    if not solved:
        raise InvalidInputError(
            "the expert solved no training instance",
            where=recipe.env.id,
            fix="check env.settings, or set clone.episodes=0",
        )
    progress(f"expert: {len(solved)} of {len(played)} episodes solved, {sum(len(t.turns) for t in solved)} turns")
    rows = make_rows(solved, tokenizer)
    tokenizer.freeze()
    return rows


def load_run(out: Path, world: World = ALONE, *, temperature: float | None = None) -> Run:
    """The run in a folder, as its newest whole checkpoint has it.

    Args:
        temperature: another than the recipe's, to be measured with.

    Raises:
        NotFoundError: there is none.
    """
    if not (out / "checkpoints").is_dir():
        raise NotFoundError(
            "there is no training run", where=str(out), expected="a folder that `toolverse train` wrote"
        )
    saved = checkpoint.latest(out / "checkpoints")
    recipe = Recipe.parse(saved.state["recipe"], where=str(saved.path / "state.json"))
    if temperature is not None:
        policy = recipe.policy.model_copy(update={"temperature": temperature})  # 0 is not for training
        recipe = recipe.model_copy(update={"policy": policy})
    tokenizer = saved_tokenizer(recipe.policy, saved.state["tokenizer"])
    model = build_model(recipe.policy, tokenizer)
    start = None
    if recipe.update.kl_coefficient or recipe.update.kl_target:
        model.load_state_dict(checkpoint.load(out / "checkpoints" / f"{0:06d}").weights)
        start = copy.deepcopy(model.backbone) if _copies_reference(recipe) else model.backbone
    model.load_state_dict(saved.weights)
    equip(model, recipe.update, world)
    run = Run(recipe, out, tokenizer, model, make_optimizer(model, recipe), world=world)
    run.reference = _reference(run, start)
    checkpoint.restore_optimizer(run.optimizer, saved.moments)
    run.updates_done = saved.update
    run.kl_coefficient = saved.state["kl_coefficient"]
    run.start = saved.state["start"]
    run.cpu_before = saved.state["cpu_s"] - time.process_time()
    return run


def make_optimizer(model: PolicyModel, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW in two groups: the policy's trunk, and the critic (its heads, and its own trunk if it has one)."""
    settings = recipe.update
    trunk = [p for p in model.backbone.parameters() if p.requires_grad]
    critic = [*model.heads.parameters()]
    if model.critic_backbone is not None:
        critic += [p for p in model.critic_backbone.parameters() if p.requires_grad]
    return torch.optim.AdamW(
        [
            {"params": trunk, "lr": settings.learning_rate},
            {"params": critic, "lr": settings.critic_learning_rate},
        ],
        betas=(0.9, 0.99),
        eps=1e-6,
        weight_decay=settings.weight_decay,
    )


def _reference(run: Run, backbone: Any) -> Any:
    """The warm start, if the recipe measures a distance to it: a frozen copy, or the model itself with its adapters off.

    Raises:
        InvalidInputError: the model is sharded, so that a copy would cost what sharding saves.
    """
    if not run.recipe.update.kl_coefficient and not run.recipe.update.kl_target:
        return None
    if not _copies_reference(run.recipe):
        return run.model.backbone
    if is_sharded(run.model):
        raise InvalidInputError(
            "a sharded model has no frozen copy to measure the KL to",
            where="update.kl_coefficient",
            fix="train adapters (policy.lora > 0, clone.episodes = 0): the reference is then the model without them",
        )
    frozen = copy.deepcopy(backbone)
    frozen.requires_grad_(False)
    return frozen


def _copies_reference(recipe: Recipe) -> bool:
    """Fresh adapters change nothing: a model that starts from them is its own reference with them off."""
    return not recipe.policy.lora or recipe.clone.episodes > 0


# --- telling ----------------------------------------------------------------------------------------------------------------


def _as_json(found: Success) -> dict[str, Any]:
    return {
        "success": found.rate,
        "interval": [round(x, 4) for x in found.interval],
        "episodes": found.episodes,
        "mean_score": round(found.mean_score, 4),
        "mean_turns": round(found.mean_turns, 2),
    }


def _result(run: Run, end: Success, lines: list[dict[str, Any]]) -> dict[str, Any]:
    recipe = run.recipe
    return {
        "recipe": recipe.name,
        "estimator": recipe.credit.estimator,
        "seed": recipe.seed,
        "updates": run.updates_done,
        "success_start": run.start["success"],
        "interval_start": run.start["interval"],
        "success_end": end.rate,
        "interval": [round(x, 4) for x in end.interval],
        "score_start": run.start["mean_score"],
        "score_interval_start": [round(x, 4) for x in score_interval(run.start["mean_score"], end.episodes)],
        "score_end": round(end.mean_score, 4),
        "score_interval": [round(x, 4) for x in score_interval(end.mean_score, end.episodes)],
        "episodes": end.episodes,
        "alarms": sorted({alarm.partition(":")[0] for line in lines for alarm in line["alarms"]}),
        "cpu_s": round(run.cpu_s(), 1),
    }


def _sentence(line: Mapping[str, Any]) -> str:
    parts = [
        f"update {line['update']}: success {line['success']:.0%}",
        f"entropy {line['entropy']:.3f}",
        f"kl {line['kl']:.4f}",
    ]
    if line["explained_variance"] is not None:
        parts.append(f"explained variance {line['explained_variance']:.2f}")
    if "held_out" in line:
        parts.append(f"held out {line['held_out']:.1%}")
    parts.append(f"{line['cpu_s']:.0f} CPU-s")
    return ", ".join([*parts, *line["alarms"]])
