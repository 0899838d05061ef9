"""Task rows in and out of files.

A `Task` is one row of a parquet table that plain pandas, duckdb and `datasets` read alike: nested structs for what has a fixed
shape, JSON strings in columns named `*_json` for what has not (arguments and predicates differ from row to row, and a struct
column would fill every absent key with None). The Hugging Face features are embedded, so `load_dataset` gives them as declared.

Rows can also be JSON lines (one `Task` each, as `Task.model_dump_json()` writes it).
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from toolverse.errors import InvalidInputError, NotFoundError, TaskFormatError
from toolverse.types import Model, Task, ToolSpec

if TYPE_CHECKING:
    import pyarrow as pa


def task_schema() -> pa.Schema:
    """The arrow schema of a task table, derived from the `Task` model, with Hugging Face features in its metadata.

    A model becomes a struct, a tuple of models a list of structs, and a field of free form (a dict) the string column
    `<field>_json`; so do the tool lists, whose schemas are free form all through.
    """
    import pyarrow as pa

    fields, features = _columns(Task)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.schema([pa.field(name, kind) for name, kind in fields.items()], metadata=metadata)


_FREE_FORM: Final = (ToolSpec,)


def _columns(model: type[Model]) -> tuple[dict[str, pa.DataType], dict[str, Any]]:
    """Arrow types and Hugging Face features of a model's fields, by column name."""
    fields: dict[str, pa.DataType] = {}
    features: dict[str, Any] = {}
    for field in _fields(model):
        fields[field.column], features[field.column] = _column(field.annotation)
    return fields, features


class _Field(NamedTuple):
    """A field of a model and its column. `model` is what it holds, `item` what a tuple of its holds, if those are models."""

    name: str
    column: str
    annotation: Any
    free_form: bool
    model: type[Model] | None
    item: type[Model] | None


@functools.cache
def _fields(model: type[Model]) -> tuple[_Field, ...]:
    """Worked out once: evaluating the annotations of a task costs 5 ms, all the rest of reading a row less than one."""
    found = []
    for name, annotation in get_type_hints(model).items():
        if name in model.model_fields:
            free = _is_free_form(annotation)
            inner = (_model_or_none(annotation), _model_or_none(_tuple_item(annotation)))
            found.append(_Field(name, f"{name}_json" if free else name, annotation, free, *inner))
    return tuple(found)


def _model_or_none(annotation: Any) -> type[Model] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, Model) else None


def _is_free_form(annotation: Any) -> bool:
    item = _tuple_item(annotation)
    return get_origin(annotation) is dict or (item is not None and item in _FREE_FORM)


def _tuple_item(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is tuple else None


def _column(annotation: Any) -> tuple[pa.DataType, Any]:
    import pyarrow as pa

    if _is_free_form(annotation):
        return pa.string(), {"dtype": "string", "_type": "Value"}
    if (item := _tuple_item(annotation)) is not None:
        kind, feature = _column(item)
        return pa.list_(kind), {"feature": feature, "_type": "List"}
    if isinstance(annotation, type) and issubclass(annotation, Model):
        fields, features = _columns(annotation)
        return pa.struct(list(fields.items())), features
    kinds = {str: "string", int: "int64", float: "float64", bool: "bool"}
    dtype = kinds.get(annotation, "string")  # Literal types are strings
    arrow = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}[dtype]
    return arrow, {"dtype": dtype, "_type": "Value"}


def task_to_row(task: Task) -> dict[str, Any]:
    """The row of a task: plain Python values in the shape of `task_schema()`."""
    return _to_row(Task, task.model_dump(mode="json"))


def _to_row(model: type[Model], data: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in _fields(model):
        value = data[field.name]
        if field.free_form:
            value = _dumps(value)
        elif field.item is not None:
            value = [_to_row(field.item, entry) for entry in value]
        elif field.model is not None:
            value = _to_row(field.model, value)
        row[field.column] = value
    return row


def task_from_row(row: Mapping[str, Any], *, where: str = "task row") -> Task:
    """Inverse of `task_to_row`; also takes rows as `datasets` or pandas return them, and plain `Task` dicts.

    Extra columns are ignored: a row may carry what other trainers want.

    Raises:
        TaskFormatError: with `where` and the field.
    """
    known = {column for name in Task.model_fields for column in (name, f"{name}_json")}
    data = _from_row(Task, {key: value for key, value in row.items() if key in known}, where)
    try:
        return Task.parse(data, where=where)
    except InvalidInputError as error:
        raise TaskFormatError(error.problem, where=where, fix="the columns are the fields of toolverse.Task") from error


def _from_row(model: type[Model], row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Inverse of `_to_row`, field by field; what is of free form stays as it is. None is an absent key, as parquet returns it."""
    data = {key: value for key, value in row.items() if value is not None}
    for name, column, _, free_form, inner, item in _fields(model):
        if free_form:
            if column in data:
                data[name] = _loads(data.pop(column), where, column)
        elif name in data:
            value = data[name].tolist() if hasattr(data[name], "tolist") else data[name]
            if inner is not None and isinstance(value, Mapping):
                value = _from_row(inner, value, f"{where}, {name}")
            elif item is not None and isinstance(value, (list, tuple)):
                value = [
                    _from_row(item, entry, f"{where}, {name}[{n}]") if isinstance(entry, Mapping) else entry
                    for n, entry in enumerate(value)
                ]
            data[name] = value
    return data


def _dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _loads(value: Any, where: str, key: str) -> Any:
    if not isinstance(value, str):
        raise TaskFormatError(f"column {key!r} holds {type(value).__name__}", where=where, expected="a JSON string")
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise TaskFormatError(f"column {key!r} is not JSON ({error})", where=where) from error


def write_tasks(tasks: Iterable[Task], path: str | Path) -> int:
    """Write one file, parquet or JSON lines by its suffix; the file appears whole or not at all. Returns the number of rows.

    Raises:
        InvalidInputError: the suffix is neither `.parquet` nor `.jsonl`, or the file can't be written.
    """
    file = Path(path)
    if file.suffix not in (".parquet", ".jsonl"):
        raise InvalidInputError(f"unknown suffix {file.suffix!r}", where=str(file), expected=".parquet or .jsonl")
    partial = file.with_name(file.name + ".partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        count = _write_parquet(tasks, partial) if file.suffix == ".parquet" else _write_jsonl(tasks, partial)
        os.replace(partial, file)
    except OSError as error:
        raise InvalidInputError(f"can't be written ({error.strerror or error})", where=str(file)) from error
    finally:
        partial.unlink(missing_ok=True)
    return count


_ROWS_PER_GROUP: Final = 1_000


def _write_parquet(tasks: Iterable[Task], file: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, count = task_schema(), 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for task in tasks:
            batch.append(task_to_row(task))
            if len(batch) == _ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                count += len(batch)
                batch.clear()
        writer.write_table(pa.Table.from_pylist(batch, schema=schema))
        return count + len(batch)


def _write_jsonl(tasks: Iterable[Task], file: Path) -> int:
    count = 0
    with file.open("w", encoding="utf-8") as out:
        for task in tasks:
            out.write(_dumps(task.model_dump(mode="json")) + "\n")
            count += 1
    return count


def iter_tasks(path: str | Path, *, split: str | None = None) -> Iterator[Task]:
    """The tasks of a file, or of a dataset folder, in file order.

    Args:
        path: a `.parquet` or `.jsonl` file, or a folder in Hugging Face layout (`<split>-*.parquet`, also one level down as
            `<config>/`; only the `tasks` or `default` config counts if there are several).
        split: only this split of a folder; None takes all.

    Raises:
        NotFoundError: no such file, or no task table in the folder.
        TaskFormatError: with file and row.
    """
    for file in task_files(path, split):
        yield from _iter_parquet(file) if file.suffix == ".parquet" else _iter_jsonl(file)


def load_tasks(path: str | Path, *, split: str | None = None) -> list[Task]:
    """`iter_tasks` as a list."""
    return list(iter_tasks(path, split=split))


def task_files(path: str | Path, split: str | None = None) -> list[Path]:
    """The files that `iter_tasks` reads, in its order.

    Raises:
        NotFoundError, TaskFormatError: see there.
    """
    path = Path(path)
    if path.is_file():
        if path.suffix not in (".parquet", ".jsonl"):
            raise TaskFormatError(f"unknown suffix {path.suffix!r}", where=str(path), expected=".parquet or .jsonl")
        return [path]
    if not path.is_dir():
        raise NotFoundError(
            "no such file or folder", where=str(path), fix="generate one with `toolverse tasks generate`"
        )
    pattern = f"{split or '*'}-*.parquet"
    for folder in (path, path / "tasks", path / "default", path / "data"):
        if files := sorted(folder.glob(pattern)) or sorted(folder.glob(f"{split or '*'}.jsonl")):
            return files
    wanted = f"split {split!r}" if split else "a task table"
    raise NotFoundError(f"the folder holds no {wanted}", where=str(path), expected=pattern)


def _iter_parquet(file: Path) -> Iterator[Task]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        number = 0
        for batch in table.iter_batches(batch_size=_ROWS_PER_GROUP):
            for row in batch.to_pylist():
                yield task_from_row(row, where=f"{file}, row {number}")
                number += 1
    except pa.ArrowInvalid as error:
        raise TaskFormatError(f"is no parquet file ({error})", where=str(file)) from error


def _iter_jsonl(file: Path) -> Iterator[Task]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = f"{file}, line {number}"
                row = _loads(line, where, "row")
                if not isinstance(row, Mapping):
                    raise TaskFormatError(f"the line holds {type(row).__name__}", where=where, expected="an object")
                yield task_from_row(row, where=where)
