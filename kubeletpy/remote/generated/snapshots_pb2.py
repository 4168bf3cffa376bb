"""containerd's snapshots v1 (Stat) messages. Made by tools/gen_protos.py from snapshots.proto; do not edit."""

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    b'\n*kubeletpy/remote/generated/snapshots.proto\x12 containerd.services.snapshots.v1"I\n\x13StatSnapshotRequest\x12 \n\x0bsnapshotter\x18\x01 \x01(\tR\x0bsnapshotter\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key"\x16\n\x14StatSnapshotResponse2\x82\x01\n\tSnapshots\x12u\n\x04Stat\x125.containerd.services.snapshots.v1.StatSnapshotRequest\x1a6.containerd.services.snapshots.v1.StatSnapshotResponseb\x06proto3'
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
