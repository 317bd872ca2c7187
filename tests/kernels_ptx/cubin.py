# SPDX-License-Identifier: Apache-2.0
"""Reads the kernels of a cubin, an ELF64 file: registers, stack, and what their instructions do.

An instruction of sm_70 and later has 16 bytes. The low 12 bits are its operation; in accesses to
memory, bits 73 to 75 are the width.
"""
import collections
import struct

GLOBAL_LOADS = {0x981: "LDG"}
GLOBAL_STORES = {0x986: "STG"}
LOCAL_ACCESSES = {0x983: "LDL", 0x387: "STL", 0x987: "STL"}
WIDTH_BITS = {0: 8, 1: 8, 2: 16, 3: 16, 4: 32, 5: 64, 6: 128}

# Attributes in the section .nv.info; both apply to the symbol that they name.
ATTRIBUTE_WITH_SIZE = 0x04
FRAME_SIZE = 0x11
REGISTER_COUNT = 0x2F

SHT_SYMTAB = 2
STT_FUNC = 2
STO_ENTRY = 0x10  # in st_other: the symbol is a kernel, not a function that kernels call


class FormatError(Exception):
    """The file is not what it should be."""


class Kernel:
    """One entry point: `loads` and `stores` count accesses to global memory by their bits."""

    def __init__(self, name, registers, stack_bytes):
        self.name = name
        self.registers = registers
        self.stack_bytes = stack_bytes
        self.loads = collections.Counter()
        self.stores = collections.Counter()
        self.local = 0
        self.instructions = 0

    def read_code(self, code):
        for low, high in struct.iter_unpack("<QQ", code):
            operation = low & 0xFFF
            bits = WIDTH_BITS.get(high >> 9 & 7)
            self.instructions += 1
            if operation in GLOBAL_LOADS:
                self.loads[bits] += 1
            elif operation in GLOBAL_STORES:
                self.stores[bits] += 1
            elif operation in LOCAL_ACCESSES:
                self.local += 1


def sections_of(data):
    """(name, header fields, content) of every section."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise FormatError("not a little-endian ELF64 file")
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    strings = data[headers[names][4]:headers[names][4] + headers[names][5]]
    return [(text_at(strings, header[0]), header, data[header[4]:header[4] + header[5]])
            for header in headers]


def text_at(strings, offset):
    return strings[offset:strings.index(b"\0", offset)].decode()


def attributes_of(content):
    """{(attribute, symbol's index): value} of the attributes that are a value for a symbol."""
    values, position = {}, 0
    while position < len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, position)
        position += 4
        if form == ATTRIBUTE_WITH_SIZE:
            if size == 8:
                symbol, value = struct.unpack_from("<II", content, position)
                values[attribute, symbol] = value
            position += size
    return values


def read(path):
    """The kernels of a cubin by their mangled names."""
    with open(path, "rb") as file:
        sections = sections_of(file.read())
    code = {name[len(".text."):]: content for name, _, content in sections
            if name.startswith(".text.")}
    attributes = {}
    for name, _, content in sections:
        if name == ".nv.info":
            attributes = attributes_of(content)
    kernels = {}
    for _, header, content in sections:
        if header[1] != SHT_SYMTAB:
            continue
        strings = sections[header[6]][2]
        symbols = struct.iter_unpack("<IBBHQQ", content)
        for index, (name, info, other, _, _, _) in enumerate(symbols):
            symbol = text_at(strings, name)
            if info & 0xF == STT_FUNC and other & STO_ENTRY and symbol in code:
                if (REGISTER_COUNT, index) not in attributes:
                    raise FormatError(f"no register count for {symbol}")
                kernels[symbol] = Kernel(symbol, attributes[REGISTER_COUNT, index],
                                         attributes.get((FRAME_SIZE, index), 0))
                kernels[symbol].read_code(code[symbol])
    return kernels
