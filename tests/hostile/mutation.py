"""Damages the files and options of a command, from a seeded random generator."""

import json
import random
import re

# Text that is not meant to be read: terminals, Markdown, HTML, mathtext and file systems take some of it for
# more than characters.
FOREIGN = [
    "", " ", "\x1b[31mred\x1b[0m", "\x9b2J", "\u202eright to left", "two\nlines", "a\ttab\rreturn", "nul\x00byte",
    "$\\frac{1}$", "a_b^c\\", "`|*_<script>alert(1)</script>", '"quoted", \'twice\'', "=SUM(A1)", "%s%n{}",
    "../../etc/passwd", "/dev/zero", "/dev/stdin", "/", "\ud800", "ligature \ufb01, combined e\u0301, \U0001f600",
    "x" * 5000]
# As they stand in a file: some are no JSON.
NUMBERS = ["0", "-0", "-1", "1", "2", "3", "0.5", "1e-300", "5e-324", "1e300", "1e308", "1e309", "-1e308", "NaN",
           "Infinity", "-Infinity", "01", "+1", "1.", ".5", "0x10", "9007199254740993", "2147483648", "-2147483649",
           "9223372036854775807", "9223372036854775808", "18446744073709551616", "1" * 400, "1e-9", "1000000",
           "99999999"]
OTHERS = ["null", "true", "false", "[]", "{}", "[[]]", '[{"a": {}}]', '"1"']
BYTES = [b"\x00", b"\xff", b"\xef\xbb\xbf", b"\n", b"\r", b",", b'"', b"{", b"}", b"[", b"]", b":", b"\\", b"-", b"e", b"9" * 30,
         b"\xc0\x80", b"\xed\xa0\x80", b"\x1b[2J", b"\xc2\x9b", b"\xe2\x80\xae"]
MARK = "\ue000"  # stands for a token that json would not write


def places(node, path=()):
    """Every value of a document, as the path that leads there."""
    yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, path + (key,))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from places(value, path + (index,))


def at(node, path):
    for step in path:
        node = node[step]
    return node


class Mutator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def one_in(self, count):
        return self.random.randrange(count) == 0

    def pick(self, items):
        return items[self.random.randrange(len(items))]

    # --- JSON ---

    def token(self):
        """A value as it is written, which need not be JSON."""
        kind = self.random.randrange(4)
        if kind == 0:
            return json.dumps(self.pick(FOREIGN), ensure_ascii=self.one_in(2))
        return self.pick(NUMBERS if kind < 3 else OTHERS)

    def near(self, value):
        """A number of the same kind, otherwise some token."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or self.one_in(3):
            return self.token()
        factor = self.pick([0, -1, 1e-6, 0.1, 0.5, 2, 10, 1000, 1e6, 1e9])
        changed = value * factor
        return json.dumps(int(changed) if isinstance(value, int) and abs(changed) < 1e18 else changed)

    def scaled_json(self, document):
        """The same with some numbers that are other, but of their kind: what is still taken goes further."""
        numbers = [path for path in places(document) if path and isinstance(at(document, path), (int, float)) and
                   not isinstance(at(document, path), bool)]
        for _ in range(min(self.random.randint(1, 4), len(numbers))):
            path = self.pick(numbers)
            parent, key = at(document, path[:-1]), path[-1]
            scaled = parent[key] * self.pick([0, 0.01, 0.5, 0.9, 1.1, 2, 7, 100])
            parent[key] = round(scaled) if isinstance(parent[key], int) else scaled
        return json.dumps(document).encode()

    def changed_json(self, text):
        try:
            document = json.loads(text)
        except ValueError:
            return self.changed_bytes(text.encode(errors="surrogatepass"))
        if self.one_in(2):
            return self.scaled_json(document)
        tokens = []
        for _ in range(self.random.randint(1, 3)):
            every = [path for path in places(document) if path]
            if not every:
                break
            self.change_at(document, self.pick(every), tokens)
        written = json.dumps(document, ensure_ascii=False)
        for index, token in enumerate(tokens):
            written = written.replace(f'"{MARK}{index}{MARK}"', token)
        return written.encode(errors="surrogatepass")

    def change_at(self, document, path, tokens):
        parent, key = at(document, path[:-1]), path[-1]
        kind = self.random.randrange(8)
        if kind == 0:
            del parent[key]
        elif kind == 1 and isinstance(parent, dict):
            parent[self.pick(FOREIGN + [key + "s", key.upper(), "unknown"])] = parent.pop(key)
        elif kind == 2 and isinstance(parent, list):
            parent.extend([parent[key]] * self.pick([1, 2, 50]))
        elif kind == 3 and isinstance(parent, list):
            self.random.shuffle(parent)
        elif kind == 4:
            other = self.pick(list(places(document)))
            parent[key] = json.loads(json.dumps(at(document, other)))
        else:
            tokens.append(self.near(parent[key]))
            parent[key] = f"{MARK}{len(tokens) - 1}{MARK}"

    # --- lines and cells ---

    def changed_lines(self, text):
        lines = text.splitlines(keepends=True) or [""]
        for _ in range(self.random.randint(1, 3)):
            index = self.random.randrange(len(lines))
            kind = self.random.randrange(7)
            if kind == 0:
                del lines[index]
                lines = lines or [""]
            elif kind == 1:
                lines.insert(index, lines[index] * self.pick([1, 2, 200]))
            elif kind == 2:
                self.random.shuffle(lines)
            elif kind == 3:
                lines.insert(index, self.pick(FOREIGN) + "\n")
            else:
                lines[index] = self.changed_line(lines[index])
        return "".join(lines).encode(errors="surrogatepass")

    def changed_line(self, line):
        if line.lstrip().startswith("{"):
            return self.changed_json(line).decode(errors="replace") + "\n"
        words = re.split(r"([,\s]+)", line)
        index = self.random.randrange(0, len(words), 2)
        if self.one_in(2) and re.fullmatch(r"[0-9.]+", words[index]):
            words[index] += str(self.random.randrange(10))
            return "".join(words)
        words[index] = self.pick(self.pick([FOREIGN, NUMBERS, [words[index] * 3, "", "-" + words[index]]]))
        return "".join(words)

    # --- bytes ---

    def changed_bytes(self, data):
        data = bytearray(data)
        for _ in range(self.random.randint(1, 4)):
            place = self.random.randrange(len(data) + 1)
            kind = self.random.randrange(6)
            if kind == 0:
                del data[place:]
            elif kind == 1:
                del data[place:place + self.random.randint(1, 20)]
            elif kind == 2:
                end = place + self.random.randint(1, 200)
                data[place:place] = data[place:end] * self.random.randint(1, 3)
            elif kind == 3 and place < len(data):
                data[place] ^= 1 << self.random.randrange(8)
            else:
                data[place:place] = self.pick(BYTES)
        return bytes(data)

    def changed(self, data, kind):
        """`data` of a file of this kind (json, lines or bytes), changed as such or just as bytes."""
        if self.one_in(8):
            return data
        if kind == "bytes" or self.one_in(8):
            return self.changed_bytes(data)
        text = data.decode(errors="replace")
        return self.changed_json(text) if kind == "json" else self.changed_lines(text)
