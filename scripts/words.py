"""Finds wording that must not come back into what users read: messages, --help and documents (docs/glossary.md).

scripts/words.toml lists the phrases, each with what to write instead. Of a source file, what a user can see is read: string
literals outside of tests, and the comments that clap turns into help. A phrase may be broken over lines.
"""

import re

# A comment, a raw string, a string, or a character; a lifetime is none of them.
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/"""
    r"""|\b[bc]?r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)"""
    r"""|\b[bc]?"(?P<text>(?:[^"\\]|\\.)*)"|"(?P<plain>(?:[^"\\]|\\.)*)\""""
    r"""|'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^\\'\n])'""",
    re.DOTALL | re.VERBOSE,
)
TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{", re.MULTILINE)
CLAP_ITEM = re.compile(
    r"(?:^///[^\n]*\n)*(?:^#\[[^\n]*\n)*?^#\[derive\([^)]*\b(?:Parser|Args|Subcommand|ValueEnum)\b[^)]*\)\]\n.*?^\}",
    re.DOTALL | re.MULTILINE,
)
DOC_COMMENT = re.compile(r"(?:^ *///[^\n]*\n)+", re.MULTILINE)

# What may stand between two words of a phrase: a blank, or the end of a line with what begins the next one.
BETWEEN = r"(?:\s|\\(?=\n)|///|^> ?)+"


def visible(path, text):
    """The parts of a file that users see, each with where it begins."""
    if path.endswith(".md") or path.startswith("packaging/"):
        yield 0, text
    is_source = re.fullmatch(r"crates/[\w-]+/src/.*\.rs", path)
    if not is_source or path.endswith("/tests.rs") or "/tests/" in path:
        return
    tests = TESTS.search(text)
    end = tests.start() if tests else len(text)
    for token in TOKEN.finditer(text, 0, end):
        group = token.lastgroup
        if group is not None:
            yield token.start(group), token[group]
    for item in CLAP_ITEM.finditer(text, 0, end):
        for comment in DOC_COMMENT.finditer(text, *item.span()):
            yield comment.start(), comment[0]


def pattern(phrase):
    """The regular expression of a phrase: its blanks also match the end of a line."""
    return re.compile(phrase.replace(" ", BETWEEN), re.IGNORECASE | re.MULTILINE)


def check_words(files, rules):
    """Findings for files (path, text). `rules`: the list of `phrase`, what is `accepted`, and the files that are `exempt`."""
    phrases = [(pattern(row["phrase"]), row) for row in rules["phrase"]]
    anything = pattern("|".join(f"(?:{row['phrase']})" for row in rules["phrase"]))
    accepted = {(row["file"], row["phrase"]): row.get("reason", "").strip() for row in rules.get("accepted", [])}
    used = set()
    for path, text in files:
        if rules.get("exempt", {}).get(path, "").strip():
            continue
        for begin, part in visible(path, text):
            if not anything.search(part):
                continue
            for expression, row in phrases:
                for match in expression.finditer(part):
                    if accepted.get((path, row["phrase"])):
                        used.add((path, row["phrase"]))
                        continue
                    line = text.count("\n", 0, begin + match.start()) + 1
                    found = re.sub(r"[\s\\/]+", " ", match[0])
                    yield f"{path}:{line}: {found!r} is not how users say it: write {row['instead']}"
    for path, phrase in sorted(set(accepted) - used):
        yield f"scripts/words.toml: {phrase!r} is accepted in {path} without need or reason: remove its entry"
