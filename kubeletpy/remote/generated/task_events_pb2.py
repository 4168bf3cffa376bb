"""containerd's events v1 (exits) messages. Made by tools/gen_protos.py from task_events.proto; do not edit."""

from google.protobuf import descriptor_pool, any_pb2
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    b'\n,kubeletpy/remote/generated/task_events.proto\x12\x1dcontainerd.services.events.v1\x1a\x19google/protobuf/any.proto",\n\x10SubscribeRequest\x12\x18\n\x07filters\x18\x01 \x03(\tR\x07filters"j\n\x08Envelope\x12\x1c\n\tnamespace\x18\x02 \x01(\tR\tnamespace\x12\x14\n\x05topic\x18\x03 \x01(\tR\x05topic\x12*\n\x05event\x18\x04 \x01(\x0b2\x14.google.protobuf.AnyR\x05event"p\n\x08TaskExit\x12!\n\x0ccontainer_id\x18\x01 \x01(\tR\x0bcontainerId\x12\x0e\n\x02id\x18\x02 \x01(\tR\x02id\x12\x10\n\x03pid\x18\x03 \x01(\rR\x03pid\x12\x1f\n\x0bexit_status\x18\x04 \x01(\rR\nexitStatus2q\n\x06Events\x12g\n\tSubscribe\x12/.containerd.services.events.v1.SubscribeRequest\x1a\'.containerd.services.events.v1.Envelope0\x01b\x06proto3'
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
