"""Finds what is kept and of no use: settings of the model that nobody reads, counters that nobody adds to.

A setting that is read from a configuration, documented and then used by nobody is a promise that is not kept, and no test of
behaviour misses what was never there. The compiler knows every use of a field, but warns of none that is public. So a copy of
the sources is checked in which every field of the model is deprecated: the warnings are the uses, each with its place.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

STRUCT = re.compile(r"pub struct (\w+)(?:<.*>)? \{$")
FIELD = re.compile(r"    pub (\w+): ")
USE = re.compile(r"use of deprecated field `[\w:]*`: (\w+::\w+)$")
# An assignment, also a compound one, but no comparison and no arm of a match.
ASSIGNED = re.compile(r"\s*(?:[-+*/%&|^]|<<|>>)?=(?![=>])")
# What follows the closing brace of a pattern, but of no expression.
PATTERN_ENDS = re.compile(r"\s*(?:=(?!=)|\||:(?!:)|\sin\s)")


def mark(text):
    """A source text with every public field of a structure deprecated, and the fields as `Struct::field`."""
    lines, fields, struct = [], [], None
    for line in text.splitlines():
        if match := STRUCT.match(line):
            struct = match[1]
        elif line == "}":
            struct = None
        elif struct and (match := FIELD.match(line)):
            fields.append(f"{struct}::{match[1]}")
            lines.append(f'    #[deprecated(note = "{fields[-1]}")]')
        lines.append(line)
    return "\n".join(lines) + "\n", fields


def is_read(text, begin, end):
    """Whether the use of a field at these positions takes its value: neither an assignment nor a part of a new structure."""
    use = text[begin:end]
    if not re.match(r"\w+\s*(?::[^:]|$)", use):
        # `place.field`, in one line or several.
        return not ASSIGNED.match(text, end)
    if re.match(r"\w+\s*:\s*_$", use):
        return False
    depth, at = 0, end
    while at < len(text) and depth >= 0:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return bool(PATTERN_ENDS.match(text, at))


def reads(messages, root, is_counted):
    """The fields that are read, from the compiler's messages (a line of JSON each). `is_counted`: whether a crate and a file are
    those of somebody who uses the model."""
    found, texts = set(), {}
    for line in messages:
        message = json.loads(line)
        if message.get("reason") != "compiler-message":
            continue
        crate, message = message["target"]["name"], message["message"]
        use = USE.match(message["message"])
        if not use or use[1] in found:
            continue
        for span in message["spans"]:
            name = span["file_name"]
            if not span["is_primary"] or not is_counted(crate, name):
                continue
            if name not in texts:
                texts[name] = (Path(root) / name).read_bytes()
            bytes_ = texts[name]
            begin = len(bytes_[: span["byte_start"]].decode())
            end = begin + len(bytes_[span["byte_start"] : span["byte_end"]].decode())
            if is_read(bytes_.decode(), begin, end):
                found.add(use[1])
    return found


def copy_marked(root, paths, into, model):
    """Copies files below `root`, marking those of the folder `model`; gives the fields. Their times stay, so that cargo checks only
    what changed. Crates get another folder: cargo knows a crate by its place in the workspace, and would take these for the others.
    """
    shutil.rmtree(into, ignore_errors=True)
    fields = []
    for path in paths:
        source, target = Path(root) / path, Path(into) / re.sub("^crates/", "marked/", path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
        if path == "Cargo.toml":
            target.write_text(source.read_text().replace('"crates/', '"marked/'))
            shutil.copystat(source, target)
        if path.startswith(model + "/src/") and path.endswith(".rs"):
            text, more = mark(source.read_text())
            fields += more
            target.write_text(text)
            shutil.copystat(source, target)
    return fields


def check_fields(root, paths, rules, cargo=()):
    """Findings for fields of the crate `rules["model"]` that nobody reads. `paths`: the files of the workspace; `cargo`: more words
    for `cargo check`; `rules["accepted"]`: field to reason."""
    into = Path(root) / "target" / "audit"
    fields = copy_marked(root, paths, into, rules["model"])
    command = ["cargo", "check", "--quiet", "--message-format", "json", "-p", rules["program"], *cargo]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(Path(root) / "target")}
    done = subprocess.run(command, cwd=into, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        sys.exit("scripts/audit: the marked copy of the sources does not compile")

    def is_counted(crate, name):
        return crate not in rules["without"] and not any(part in name for part in rules["without_files"])

    found = reads(done.stdout.splitlines(), into, is_counted)
    yield from judge(fields, found, rules["accepted"])


def judge(fields, found, accepted):
    """Findings for fields of which none of the uses is a read."""
    for field in fields:
        if field not in found and not accepted.get(field, "").strip():
            yield f"{field}: it is in the model, and nobody reads it: give it its effect, or refuse what sets it"
    for field in accepted:
        if field not in fields or field in found:
            yield f"scripts/audit.toml: {field} needs no exception any more: remove its line"


def variants(text, enum):
    """The variants of an enum without data, as in the source."""
    body = re.search(r"pub enum " + enum + r" \{\n(.*?)\n\}", text, re.S)
    return re.findall(r"^    (\w+),$", body[1], re.M) if body else []


def without_tests(text):
    """A source text without its module of tests, which stands last."""
    return text.split("\n#[cfg(test)]\nmod tests {")[0]


def check_counters(files, rules):
    """Findings for counters that nobody adds to, or nobody shows. `files`: path and text."""
    files = {path: without_tests(text) for path, text in files if path.endswith(".rs") and "/tests" not in path}
    accepted = rules["accepted"]
    counters = variants(files.get(rules["counters"], ""), "Counter")
    if not counters:
        yield f"{rules['counters']}: has no enum Counter"

    def named(folder):
        texts = (text for path, text in files.items() if path.startswith(folder) and path != rules["counters"])
        return {name for text in texts for name in re.findall(r"\bCounter::(\w+)", text)}

    added, shown = named(rules["adds"]), named(rules["shows"])
    for counter in counters:
        reason = accepted.get(counter, "").strip()
        if counter in added and counter in shown:
            if counter in accepted:
                yield f"scripts/audit.toml: Counter::{counter} needs no exception any more: remove its line"
        elif not reason:
            what = "adds to it" if counter not in added else "shows it"
            yield f"{rules['counters']}: Counter::{counter}: nobody {what}"
