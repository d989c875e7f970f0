"""Protobuf's schemas for tests, made without its compiler."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pool import DescriptorPool


def field(
    message: Any, name: str, number: int, kind: int, of: str = "", *, repeated: bool = False, json: str = ""
) -> Any:
    label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    return message.field.add(
        name=name, number=number, type=kind, type_name=of or None, label=label, json_name=json or None
    )


def file_of(name: str, package: str) -> Any:
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")


def _order_file() -> Any:
    file = file_of("shop/order.proto", "shop")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Ping")
    order = file.message_type.add(name="Order")
    field(order, "id", 1, Field.TYPE_INT64)
    field(order, "count", 2, Field.TYPE_INT32)
    field(order, "status", 3, Field.TYPE_ENUM, ".shop.Status")
    field(order, "size", 4, Field.TYPE_UINT64)
    order.oneof_decl.add(name="contact")
    field(order, "phone", 5, Field.TYPE_STRING).oneof_index = 0
    field(order, "mail", 6, Field.TYPE_STRING).oneof_index = 0
    field(order, "tags", 7, Field.TYPE_MESSAGE, ".shop.Order.TagsEntry", repeated=True)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, Field.TYPE_STRING)
    field(entry, "value", 2, Field.TYPE_INT32)
    item = order.nested_type.add(name="Item")
    field(item, "sku", 1, Field.TYPE_STRING)
    field(item, "parent", 2, Field.TYPE_MESSAGE, ".shop.Order")
    field(order, "items", 8, Field.TYPE_MESSAGE, ".shop.Order.Item", repeated=True)
    field(order, "at", 9, Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    status = file.enum_type.add(name="Status")
    for number, name in enumerate(("OPEN", "PAID", "LOST")):
        status.value.add(name=name, number=number)
    return file


ORDER_FILE = _order_file()
ORDER_SET = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[ORDER_FILE]).SerializeToString()).decode()


def order_type() -> Any:
    return class_of([ORDER_FILE], "shop.Order")


def class_of(files: list[Any], name: str) -> Any:
    pool = DescriptorPool()
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    for file in (timestamp, *files):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
