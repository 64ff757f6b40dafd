"""Makes the generated half of the package, all of it from `proto/`:

- `strata/<area>/v1/*_pb2.py` and their type stubs, by protoc;
- `strata/reasons.py`: every reason of failure with what `error_reason.proto` says of it;
- `strata/types.py`: messages and enums under one name each;
- `strata/aio/services.py`: a typed method with keyword arguments for every RPC;
- `strata/_sync/`: the blocking twin of `strata/aio/`, so that every line of the client is written once.

Run by `setup.py`, never by hand.
"""

from __future__ import annotations

import pathlib
import re
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
#: Packages whose services people call, with the name of the client's attribute and class.
AREAS = {"working": "WorkingMemory", "session": "SessionMemory", "longterm": "LongTermMemory", "router": "Router", "admin": "Admin"}
WELL_KNOWN = {
    "google.protobuf.Timestamp": "datetime.datetime | timestamp_pb2.Timestamp",
    "google.protobuf.Duration": "datetime.timedelta | duration_pb2.Duration",
    "google.protobuf.FieldMask": "field_mask_pb2.FieldMask",
}
SCALARS = {1: "float", 2: "float", 8: "bool", 9: "str", 12: "bytes"}  # everything else that is no message is an int
MESSAGE, ENUM = 11, 14
HEAD = '"""Generated from the protos. Do not edit."""\n\n'


def protos() -> pathlib.Path:
    """The folder of the protos: inside a source distribution, else that of the repository."""
    inside = HERE / "proto"
    return inside if inside.is_dir() else HERE.parent.parent / "proto"


def package(proto: pathlib.Path, source: pathlib.Path, target: pathlib.Path) -> None:
    """Writes every generated module below `target`, where the hand-written ones are already."""
    files = descriptors(proto, target)
    write(target / "strata/reasons.py", reasons(proto / "strata/common/v1/error_reason.proto"))
    write(target / "strata/types.py", types(files))
    write(target / "strata/aio/services.py", services(files))
    for module in [*(source / "strata/aio").glob("*.py"), target / "strata/aio/services.py"]:
        write(target / "strata/_sync" / module.name, blocking(module.read_text()))


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def descriptors(proto: pathlib.Path, target: pathlib.Path):  # type: ignore[no-untyped-def]
    """Runs protoc for every file and gives back their descriptors, with comments."""
    import grpc_tools
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    include = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    names = sorted(str(p.relative_to(proto)) for p in proto.rglob("*.proto") if "internal" not in p.parts)
    with tempfile.TemporaryDirectory() as folder:
        image = pathlib.Path(folder) / "image.binpb"
        args = ["protoc", f"-I{proto}", f"-I{include}", f"--python_out={target}", f"--pyi_out={target}",
                f"--grpc_python_out={target}", "--include_source_info", "--include_imports", f"--descriptor_set_out={image}"]
        if protoc.main(args + names) != 0:
            raise SystemExit("protoc failed")
        found = descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes())
    for folder in {(target / name).parent for name in names}:
        for level in (folder, folder.parent):
            (level / "__init__.py").touch()
    return [file for file in found.file if file.package.startswith("strata.")]


def reasons(path: pathlib.Path) -> str:
    """`error_reason.proto` states per reason the status, whether a retry is safe and whether something was written."""
    entry = re.compile(r"((?:  //[^\n]*\n)+)  ERROR_REASON_(\w+) = \d+;")
    members, facts = [], []
    for comment, name in entry.findall(path.read_text()):
        said = " ".join(line.strip(" /") for line in comment.splitlines())
        status = re.search(r"Status (\w+);", said)
        if status is None:
            continue  # UNSPECIFIED
        safe, wrote = "is safe and may help" in said, "something may have been written" in said
        if safe == ("is of no use" in said):
            raise SystemExit(f"{path}: {name} does not say whether a retry is safe")
        members.append(f'    {name} = "{name}"\n' + docstring(said, 4))
        facts.append(f"    Reason.{name}: Facts(grpc.StatusCode.{status[1]}, {safe}, {wrote}),\n")
    return (
        HEAD
        + "import enum\nfrom typing import NamedTuple\n\nimport grpc\n\n\n"
        + 'class Reason(str, enum.Enum):\n    """Why a call failed."""\n\n' + "".join(members)
        + "\n    def __str__(self) -> str:\n        return self.value\n"
        + "\n\nclass Facts(NamedTuple):\n"
        + '    """What holds for every failure with a reason."""\n\n'
        + "    code: grpc.StatusCode\n    retry_safe: bool\n    may_have_written: bool\n\n\n"
        + "FACTS: dict[Reason, Facts] = {\n" + "".join(facts) + "}\n"
    )


def docstring(text: str, indent: int) -> str:
    pad = " " * indent
    lines = textwrap.wrap(" ".join(text.split()).replace("\\", "\\\\").replace('"""', "'''"), 110 - indent)
    return f'{pad}"""' + f"\n{pad}".join(lines) + ('"""\n' if len(lines) == 1 else f'\n{pad}"""\n')


def module_of(file) -> tuple[str, str]:  # type: ignore[no-untyped-def]
    """`("strata.session.v1", "session_pb2")`."""
    path = pathlib.PurePosixPath(file.name)
    return ".".join(path.parent.parts), path.stem + "_pb2"


def area_of(file) -> str:  # type: ignore[no-untyped-def]
    return str(file.package).split(".")[1]


def imports(files) -> str:  # type: ignore[no-untyped-def]
    return "".join("from {} import {}\n".format(*module_of(file)) for file in files)


def types(files) -> str:  # type: ignore[no-untyped-def]
    """Messages but for requests and responses, and enums. A name that two areas use gets its area in front."""
    owners: dict[str, list] = {}  # type: ignore[type-arg]
    for file in files:
        names = [m.name for m in file.message_type if not re.search(r"(Request|Response)$", m.name)]
        for name in names + [e.name for e in file.enum_type]:
            owners.setdefault(name, []).append(file)
    lines = []
    for name, where in sorted(owners.items()):
        for file in where:
            alias = name if len(where) == 1 else area_of(file).capitalize() + name
            lines.append((alias, f"{alias} = {module_of(file)[1]}.{name}\n"))
    exported = "".join(f'    "{alias}",\n' for alias, _ in lines)
    return HEAD + imports(files) + "\n" + "".join(line for _, line in lines) + f"\n__all__ = [\n{exported}]\n"


def services(files) -> str:  # type: ignore[no-untyped-def]
    """A class for each service, in asyncio form; [`blocking`] makes the other."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    where = {f".{file.package}.{m.name}": (module_of(file)[1], m) for file in files for m in [*file.message_type, *file.enum_type]}

    def python(name: str) -> str:
        return f"{where[name][0]}.{where[name][1].name}"

    def one(field) -> str:  # type: ignore[no-untyped-def]
        if field.type == MESSAGE:
            known = field.type_name.lstrip(".")
            return WELL_KNOWN[known] if known in WELL_KNOWN else f"{python(field.type_name)} | Mapping[str, Any]"
        if field.type == ENUM:
            return f"{python(field.type_name)} | str"
        return SCALARS.get(field.type, "int")

    def hint(message, field) -> str:  # type: ignore[no-untyped-def]
        entry = next((n for n in message.nested_type if field.type_name.endswith(f".{message.name}.{n.name}") and n.options.map_entry), None)
        if entry is not None:
            return f"Mapping[{one(entry.field[0])}, {one(entry.field[1])}]"
        return f"Iterable[{one(field)}]" if field.label == Field.LABEL_REPEATED else one(field)

    classes, attributes = [], []
    for file in files:
        comments = {tuple(l.path): l.leading_comments for l in file.source_code_info.location if l.leading_comments}
        for number, service in enumerate(file.service):
            area = area_of(file)
            if area not in AREAS:
                raise SystemExit(f"{file.name}: {service.name} has no name in AREAS of generate.py")
            attributes.append((area, AREAS[area]))
            body = [f"class {AREAS[area]}(Service):\n" + docstring(comments.get((6, number), ""), 4)]
            for at, method in enumerate(service.method):
                request, response = where[method.input_type][1], where[method.output_type][1]
                wanted, answer = python(method.input_type), python(method.output_type)
                path = f"/{file.package}.{service.name}/{method.name}"
                name = re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower()
                doc = docstring(comments.get((6, number, 2, at), ""), 8)
                described = f'Method("{path}", {wanted}, {answer})'
                body.append(f"\n    _{name} = {described}\n")
                if method.client_streaming:
                    body.append(
                        f"\n    async def {name}(self, requests: Iterable[{wanted}], *, timeout: float | None = None) -> {answer}:\n{doc}"
                        f"        return await self._caller.upload(self._{name}, requests, timeout)\n")
                    continue
                fields = [(f.name, hint(request, f)) for f in request.field]
                signature = "".join(f"        {f}: {h} | None = None,\n" for f, h in fields)
                given = "{" + ", ".join(f'"{f}": {f}' for f, _ in fields) + "}"

                def define(suffix: str, returns: str, extra: str, statement: str, *, asynchronous: bool) -> str:
                    return (
                        f"\n    {'async ' if asynchronous else ''}def {name}{suffix}(\n        self,\n        *,\n{signature}"
                        f"        timeout: float | None = None,\n    ) -> {returns}:\n{extra}{statement}")

                if method.server_streaming:
                    body.append(define("", f"AsyncIterator[{answer}]", doc,
                        f"        return self._caller.stream(self._{name}, {given}, timeout)\n", asynchronous=False))
                    continue
                body.append(define("", answer, doc,
                    f"        return await self._caller.unary(self._{name}, {given}, timeout)\n", asynchronous=True))
                if {"page_token"} <= {f.name for f in request.field} and {"next_page_token"} <= {f.name for f in response.field}:
                    body.append(define("_pages", f"AsyncIterator[{answer}]",
                        f'        """Every page of `{name}`, fetched as it is wanted; `timeout` is for each page."""\n',
                        f"        return self._caller.pages(self._{name}, {given}, timeout)\n", asynchronous=False))
                    repeated = [f for f in response.field if f.label == Field.LABEL_REPEATED]
                    if len(repeated) == 1:
                        item = one(repeated[0]).split(" | ")[0]
                        body.append(define("_iter", f"AsyncIterator[{item}]",
                            f'        """Every one of the `{repeated[0].name}` of `{name}`, over all pages."""\n',
                            f'        return self._caller.items(self._{name}, "{repeated[0].name}", {given}, timeout)\n', asynchronous=False))
            classes.append("".join(body))
    group = "".join(f"        self.{area} = {kind}(caller)\n" for area, kind in attributes)
    listed = "".join(f'    "{kind}",\n' for _, kind in attributes)
    return (
        HEAD
        + "from __future__ import annotations\n\nimport datetime\nfrom collections.abc import AsyncIterator, Iterable, Mapping\nfrom typing import Any\n\n"
        + "from google.protobuf import duration_pb2, field_mask_pb2, timestamp_pb2\n\n"
        + imports(files)
        + "from strata.aio.call import Caller, Service\nfrom strata.method import Method\n\n\n"
        + "\n\n".join(classes)
        + '\n\nclass Services:\n    """Every service of a server, one attribute each."""\n\n'
        + f"    def __init__(self, caller: Caller) -> None:\n{group}"
        + f"\n\n__all__ = [\n{listed}" + '    "Services",\n]\n'
    )


#: What turns asyncio source into blocking source, in this order.
BLOCKING = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bimport asyncio\b", "import time"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\b__a(enter|exit|iter)__\b", r"__\1__"),
    (r"\b__anext__\b", "__next__"),
    (r"\bAsync(Iterator|Iterable|Generator)\b", r"\1"),
    (r"\bgrpc\.aio\.", "grpc."),
    (r"\bgrpc\.AioRpcError\b", "grpc.RpcError"),
    (r"\bimport grpc\.aio\n", "import grpc\n"),
    (r"\bstrata\.aio\b", "strata._sync"),
    (r" *# asyncio only\n(?:.*\n)*? *# end\n", ""),
]


def blocking(source: str) -> str:
    """The same module with every wait in the caller's thread."""
    for pattern, replacement in BLOCKING:
        source = re.sub(pattern, replacement, source)
    return source
