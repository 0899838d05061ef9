"""A word-level tokenizer that learns an environment's words from its own text: nothing to download, sequences of a few tokens.

Text is cut into pieces by a regular expression whose pieces, one after the other, are the text again (blanks go with the piece
that follows them). The vocabulary is *open* while expert episodes are read and every new piece gets the next id; then it is
frozen, and what it has never seen becomes `<unk>`. A recipe may give patterns of its own that are tried first: "(3, 4)" as one
token makes a Sokoban board 15 tokens long instead of 60. It may also name what a prompt can do without: separators, say.

Where an environment does not tell capitals from small letters, an `uncased` tokenizer reads and says everything in lower case:
the "Tumble Dry" of a title is then the "tumble dry" of an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from toolverse.envs.messages import write_calls
from toolverse.errors import InvalidInputError
from toolverse.types import JSON, ToolCall

SPECIAL: Final = ("<pad>", "<end>", "<unk>", "<system>", "<user>", "<assistant>", "<tool>")
PAD, END, UNK = 0, 1, 2
_ROLES: Final = {"system": 3, "user": 4, "assistant": 5, "tool": 6}
_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_PIECES: Final = r"\s*(?:\w+|[^\w\s])|\s+"


class WordTokenizer:
    """See the module.

    Args:
        patterns: regular expressions that are tried before the general rule (a word, or one other character, with the
            blanks before it).
        left_out: regular expressions, tried before all others, of what others say that the policy is not shown. What it says
            itself is never shortened.
        words: the vocabulary after the special tokens, in id order.
        uncased: all text is taken in lower case; the patterns see it so.
        frozen: no further words are added.

    Raises:
        InvalidInputError: a pattern is no regular expression, or matches the empty string.
    """

    def __init__(
        self,
        patterns: Sequence[str] = (),
        words: Sequence[str] = (),
        *,
        left_out: Sequence[str] = (),
        uncased: bool = False,
        frozen: bool = False,
    ) -> None:
        for pattern in (*left_out, *patterns):
            try:
                empty = re.compile(pattern).match("") is not None
            except re.error as error:
                raise InvalidInputError(
                    f"pattern {pattern!r} is no regular expression ({error})", where="tokenizer"
                ) from error
            if empty:
                raise InvalidInputError(f"pattern {pattern!r} matches the empty string", where="tokenizer")
        self.patterns, self.left_out = tuple(patterns), tuple(left_out)
        self.words = [*SPECIAL, *words]
        self.uncased, self.frozen = uncased, frozen
        self._ids = {word: index for index, word in enumerate(self.words)}
        pieces = "|".join([*(f"(?:{pattern})" for pattern in patterns), _PIECES])
        self._split = re.compile(pieces)
        self._shorten = re.compile("|".join([*(f"(?:{pattern})" for pattern in left_out), f"(?P<kept>{pieces})"]))
        self._known: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self.words)

    @property
    def end(self) -> int:
        """The id that ends a message."""
        return END

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without roles or end."""
        return [self._id(match.group()) for match in self._split.finditer(self._folded(text))]

    def shown(self, text: str) -> list[int]:
        """Ids of what others say, without what is left out."""
        found = self._known.get(text)
        if found is None:
            pieces = self._shorten.finditer(self._folded(text))
            found = [self._id(piece["kept"]) for piece in pieces if piece["kept"] is not None]
            if self.frozen and len(self._known) < 100_000:
                self._known[text] = found
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of sampled ids; special tokens are dropped."""
        return "".join(self.words[index] for index in ids if index >= len(SPECIAL))

    def offsets(self, ids: Sequence[int]) -> list[int]:
        """n + 1 character positions: token k of the decoded text spans offsets[k]:offsets[k + 1]."""
        out = [0]
        for index in ids:
            out.append(out[-1] + (len(self.words[index]) if index >= len(SPECIAL) else 0))
        return out

    def parts(self) -> list[list[int]]:
        """Of each id, the words in its piece, numbered in the order in which they first occur."""
        numbers: dict[str, int] = {}
        pieces = [
            () if index < len(SPECIAL) else _WORD.findall(piece.lower()) for index, piece in enumerate(self.words)
        ]
        return [[numbers.setdefault(word, len(numbers)) for word in piece] for piece in pieces]

    def messages(self, messages: Sequence[Mapping[str, JSON]]) -> list[int]:
        """Ids of chat messages: a role token, the words, `<end>`; text that is appended later never changes them."""
        out: list[int] = []
        for message in messages:
            out.append(_ROLES[message["role"]])
            content = str(message.get("content") or "")
            out += self.encode(content) if message["role"] == "assistant" else self.shown(content)
            out.append(END)
        return out

    def opening(self, messages: Sequence[Mapping[str, JSON]], tools: Sequence[JSON] = ()) -> list[int]:
        """A whole chat, and the token after which the policy speaks. Tools are not told: the expert shows their use."""
        return [*self.messages(messages), _ROLES["assistant"]]

    def continuation(
        self,
        before: Sequence[Mapping[str, JSON]],
        said: str,
        delta: Sequence[Mapping[str, JSON]],
        tools: Sequence[JSON] = (),
    ) -> list[int] | None:
        """What follows a message that the policy said (its `<end>` included) up to the next one. Never a rewrite."""
        return self.opening(delta)

    def spoken(
        self, before: Sequence[Mapping[str, JSON]], message: Mapping[str, JSON], tools: Sequence[JSON] = ()
    ) -> list[int]:
        """See `render.ChatTokenizer`; calls are written as tags (`envs.messages.write_calls`)."""
        calls = [
            ToolCall(name=call["function"]["name"], arguments=call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ]
        text = "\n".join(filter(None, [str(message.get("content") or ""), write_calls(calls)]))
        return [*self.encode(text), END]

    def freeze(self) -> Self:
        """No new words from here on."""
        self.frozen = True
        return self

    def to_json(self) -> dict[str, JSON]:
        return {
            "patterns": list(self.patterns),
            "left_out": list(self.left_out),
            "uncased": self.uncased,
            "words": self.words[len(SPECIAL) :],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; frozen."""
        return cls(
            data["patterns"],
            data["words"],
            left_out=data.get("left_out", ()),
            uncased=data.get("uncased", False),
            frozen=True,
        )

    def _folded(self, text: str) -> str:
        return text.lower() if self.uncased else text

    def _id(self, word: str) -> int:
        index = self._ids.get(word)
        if index is None:
            if self.frozen:
                return UNK
            index = self._ids[word] = len(self.words)
            self.words.append(word)
        return index
