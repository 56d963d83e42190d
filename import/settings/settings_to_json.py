"""Prints a file of training settings as JSON: {"script": CALLS}, {"document": DOCUMENT} or {"command": WORDS}.

usage: settings_to_json.py NAME FILE     NAME is the file's name for people, whose ending tells its kind

A Python script is parsed, never run. CALLS are its calls in the order of their lines, each
{"name": dotted name with imports and aliases resolved, "line": number, "positional": [VALUE...],
"arguments": {keyword: VALUE}, "spread": [expressions behind ** that are no literal]}. A VALUE is a literal, or
{"expression": source} with "default": literal where argparse has one. A name that the file assigns once is replaced.

A DOCUMENT is JSON as DeepSpeed reads it (Hjson: comments, trailing commas, texts without quotes), YAML or TOML.
WORDS are a shell script's, one list for each command, without comments; variables that it sets are replaced.
"""

import ast
import json
import re
import resource
import shlex
import sys

MOST_BYTES = 2 << 30
MOST_SECONDS = 60


class Unreadable(Exception):
    pass

# --- Python ---


def literal(node):
    """The value of a literal, also of arithmetic on numbers. Raises ValueError."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Add, ast.Sub, ast.Div, ast.FloorDiv)):
        left, right = literal(node.left), literal(node.right)
        if not all(isinstance(side, (int, float)) and abs(side) < 1e15 for side in (left, right)):
            raise ValueError
        operators = {ast.Mult: lambda: left * right, ast.Add: lambda: left + right, ast.Sub: lambda: left - right,
                     ast.Div: lambda: left / right, ast.FloorDiv: lambda: left // right}
        try:
            return operators[type(node.op)]()
        except ZeroDivisionError:
            raise ValueError from None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        if all(keyword.arg for keyword in node.keywords):
            return {keyword.arg: literal(keyword.value) for keyword in node.keywords}
        raise ValueError
    value = ast.literal_eval(node)
    return json.loads(json.dumps(value)) if not isinstance(value, (bytes, complex, set)) else str(value)


def literal_or_none(node):
    try:
        return literal(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


class Script(ast.NodeVisitor):
    def __init__(self, tree):
        self.names = {}  # local name: dotted name
        self.constants = {}  # name: literal, of names that are assigned once
        self.defaults = {}  # argparse's destination: default
        self.calls = []
        assigned = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.names[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0])
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.names[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}".lstrip(".")
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                            assigned.setdefault(name.id, []).append(node.value if target is name else None)
            elif isinstance(node, (ast.AugAssign, ast.For, ast.NamedExpr)):
                for name in ast.walk(node.target):
                    if isinstance(name, ast.Name):
                        assigned.setdefault(name.id, []).append(None)
            elif isinstance(node, ast.arg):
                assigned.setdefault(node.arg, []).append(None)
        for name, values in assigned.items():
            if len(values) != 1 or values[0] is None:
                continue
            value = literal_or_none(values[0])
            if value is not None or isinstance(values[0], ast.Constant):
                self.constants[name] = value
            elif isinstance(values[0], ast.Attribute):  # DDP = torch.nn.parallel.DistributedDataParallel
                self.names.setdefault(name, self.dotted(values[0]))
        self.read_argparse(tree)
        self.visit(tree)
        self.calls.sort(key=lambda call: call["line"])

    def read_argparse(self, tree):
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "add_argument"):
                continue
            flags = [flag for flag in map(literal_or_none, node.args) if isinstance(flag, str)]
            options = {keyword.arg: literal_or_none(keyword.value) for keyword in node.keywords}
            long = [flag for flag in flags if flag.startswith("--")] or flags
            destination = options.get("dest") or (long[0].lstrip("-").replace("-", "_") if long else None)
            if destination and options.get("action") in ("store_true", "store_false"):
                self.defaults[destination] = options["action"] == "store_false"
            elif destination and options.get("default") is not None:
                self.defaults[destination] = options["default"]

    def dotted(self, node):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self.names.get(node.id, node.id))
        return ".".join(reversed(parts))

    def value(self, node):
        if isinstance(node, ast.Name) and node.id in self.constants:
            return self.constants[node.id]
        found = literal_or_none(node)
        if found is not None or (isinstance(node, ast.Constant) and node.value is None):
            return found
        if isinstance(node, (ast.Name, ast.Attribute)):
            value = {"expression": self.dotted(node) or ast.unparse(node)[:200]}
        elif isinstance(node, ast.Call):
            value = {"expression": self.dotted(node.func) + "(...)"}
        else:
            value = {"expression": ast.unparse(node)[:200]}
        if isinstance(node, ast.Attribute) and node.attr in self.defaults:
            value["default"] = self.defaults[node.attr]
        return value

    def visit_Call(self, node):
        call = {"name": self.dotted(node.func), "line": node.lineno,
                "positional": [self.value(argument) for argument in node.args], "arguments": {}, "spread": []}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg:
                call["arguments"][keyword.arg] = value
            elif isinstance(value, dict) and "expression" not in value:
                call["arguments"].update(value)
            else:
                call["spread"].append(value["expression"] if isinstance(value, dict) else str(value))
        self.calls.append(call)
        self.generic_visit(node)


def read_python(text):
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: " if getattr(error, "lineno", None) else ""
        raise Unreadable(f"no Python: {line}{getattr(error, 'msg', error)}") from None
    return {"script": Script(tree).calls}

# --- JSON as DeepSpeed reads it ---


# A token: white space or a comment, a text, a bracket or separator, a number or word before one of these, a key, or all
# of a line.
COMMENT = r"\#[^\n]*|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/"
HJSON = re.compile(rf"""(?P<blank>\s+|{COMMENT}) | '''(?P<lines>.*?)''' |
    "(?P<text>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)' | (?P<mark>[{{}}\[\],:]) |
    (?P<word>true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[ \t]*(?:[,}}\]\n\r\#]|//|/\*|$)) |
    (?P<key>[^\s,:{{}}\[\]"']+)(?=(?:\s|{COMMENT})*:) | (?P<line>[^\s{{}}\[\],:"'][^\n]*)""", re.DOTALL | re.VERBOSE)


def hjson_to_json(text):
    """JSON of https://hjson.github.io/syntax.html: commas in place, no comments, lines as they were, each key's at its end."""
    parts, at, last, place, line, open_brackets = [], 0, "", 0, 1, [""]
    while at < len(text):
        token = HJSON.match(text, at)
        if token and token.lastgroup == "key" and (last == ":" or open_brackets[-1] != "{"):
            token = re.compile(r"(?P<line>[^\n]*)").match(text, at)
        if not token:
            raise Unreadable(f"expected a value in line {line}")
        kind, found, at = token.lastgroup, token[token.lastgroup], token.end()
        mark = found if kind == "mark" else ""
        line += token[0].count("\n")
        if kind == "blank":
            parts.append("\n" * found.count("\n") or " ")
        elif mark == ":" and last.startswith('"'):
            parts[place] = f'{last[:-1]}@{line}"'
            parts.append(":")
            last = ":"
        elif mark != ",":
            parts.append("," if last and last not in tuple("{[:") and mark not in tuple("]}:") else "")
            last = (f'"{found}"' if kind == "text" else found if kind in ("mark", "word")
                    else json.dumps(found.strip().replace("\\'", "'")))
            place = len(parts)
            parts.append(last)
            if mark in ("{", "["):
                open_brackets.append(mark)
            elif mark in ("}", "]") and len(open_brackets) > 1:
                open_brackets.pop()
    return "".join(parts)


def unique(pairs):
    found = {}
    for key, value in pairs:
        key, _, line = key.rpartition("@")
        if key in found:
            raise Unreadable(f"expected the key {key} once in line {line}")
        found[key] = value
    return found


def read_json(text):
    try:
        return {"document": json.loads(hjson_to_json(text), object_pairs_hook=unique)}
    except json.JSONDecodeError as error:
        raise Unreadable(f"expected JSON or Hjson: {error.msg} in line {error.lineno}") from None


# --- YAML, TOML and shell ---


def read_yaml(text):
    try:
        import yaml
    except ImportError:
        raise Unreadable("YAML is read by PyYAML: pip install pyyaml") from None
    try:
        found = yaml.safe_load(text)
        return {"document": json.loads(json.dumps(found, default=str))}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable("no YAML: " + " ".join(str(error).split())) from None


def read_toml(text):
    try:
        import tomllib
    except ImportError:
        raise Unreadable("TOML is read by Python 3.11 or later") from None
    try:
        return {"document": json.loads(json.dumps(tomllib.loads(text), default=str))}
    except ValueError as error:
        raise Unreadable(f"no TOML: {error}") from None


def read_shell(text):
    variables = {}

    def replaced(word):
        return re.sub(r"\$\{?(\w+)\}?", lambda name: variables.get(name.group(1), name.group()), word)

    commands = []
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # A quote that a later line closes.
            words = line.split()
        while words and (assigned := re.fullmatch(r"(\w+)\+?=\(?(.*?)\)?", words[0], re.DOTALL)):
            added = variables.get(assigned[1], "") + " " if "+=" in words[0] else ""
            variables[assigned[1]] = (added + replaced(assigned[2])).strip()
            words = words[1:]
        # A variable of several flags is several words; an array's lines are flags on their own.
        words = [part for word in words
                 for part in (replaced(word).split() if word.startswith("$") else [replaced(word)])]
        if words and words[0].startswith("-") and commands:
            commands[-1] += words
        elif words:
            commands.append(words)
    flags = [value.split() for value in variables.values() if value.startswith("--")]
    return {"command": commands + flags}


def read(name, text):
    ending = name.rsplit(".", 1)[-1].lower()
    if ending == "toml":
        return read_toml(text)
    if ending in ("yaml", "yml"):
        return read_yaml(text)
    if text.lstrip().startswith(("{", "//", "/*")) and ending != "py":
        return read_json(text)
    if ending in ("sh", "bash", "slurm", "sbatch", "txt"):
        return read_shell(text)
    if ending == "py":
        return read_python(text)
    try:
        return read_python(text)
    except Unreadable:
        return read_shell(text)


def main():
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    try:
        with open(sys.argv[2], encoding="utf-8-sig") as file:
            print(json.dumps(read(sys.argv[1], file.read())))
    except UnicodeDecodeError:
        sys.exit("no text")
    except (RecursionError, MemoryError):
        sys.exit("nested too deeply")
    except Unreadable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
