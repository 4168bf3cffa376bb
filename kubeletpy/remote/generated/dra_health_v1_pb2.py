"""health of allocated devices v1 messages. Made by tools/gen_protos.py from dra_health_v1.proto; do not edit."""

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    b'\n.kubeletpy/remote/generated/dra_health_v1.proto\x12\x02v1"\x1b\n\x19NodeWatchResourcesRequest"P\n\x10DeviceIdentifier\x12\x1b\n\tpool_name\x18\x01 \x01(\tR\x08poolName\x12\x1f\n\x0bdevice_name\x18\x02 \x01(\tR\ndeviceName"\xed\x01\n\x0cDeviceHealth\x12,\n\x06device\x18\x01 \x01(\x0b2\x14.v1.DeviceIdentifierR\x06device\x12(\n\x06health\x18\x02 \x01(\x0e2\x10.v1.HealthStatusR\x06health\x12*\n\x11last_updated_time\x18\x03 \x01(\x03R\x0flastUpdatedTime\x12?\n\x1chealth_check_timeout_seconds\x18\x04 \x01(\x03R\x19healthCheckTimeoutSeconds\x12\x18\n\x07message\x18\x05 \x01(\tR\x07message"H\n\x1aNodeWatchResourcesResponse\x12*\n\x07devices\x18\x01 \x03(\x0b2\x10.v1.DeviceHealthR\x07devices*7\n\x0cHealthStatus\x12\x0b\n\x07UNKNOWN\x10\x00\x12\x0b\n\x07HEALTHY\x10\x01\x12\r\n\tUNHEALTHY\x10\x022j\n\x11DRAResourceHealth\x12U\n\x12NodeWatchResources\x12\x1d.v1.NodeWatchResourcesRequest\x1a\x1e.v1.NodeWatchResourcesResponse0\x01b\x06proto3'
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
