"""health of allocated devices v1alpha1 messages. Made by tools/gen_protos.py from dra_health.proto; do not edit."""

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    b'\n+kubeletpy/remote/generated/dra_health.proto\x12\x08v1alpha1"\x1b\n\x19NodeWatchResourcesRequest"P\n\x10DeviceIdentifier\x12\x1b\n\tpool_name\x18\x01 \x01(\tR\x08poolName\x12\x1f\n\x0bdevice_name\x18\x02 \x01(\tR\ndeviceName"\xf9\x01\n\x0cDeviceHealth\x122\n\x06device\x18\x01 \x01(\x0b2\x1a.v1alpha1.DeviceIdentifierR\x06device\x12.\n\x06health\x18\x02 \x01(\x0e2\x16.v1alpha1.HealthStatusR\x06health\x12*\n\x11last_updated_time\x18\x03 \x01(\x03R\x0flastUpdatedTime\x12?\n\x1chealth_check_timeout_seconds\x18\x04 \x01(\x03R\x19healthCheckTimeoutSeconds\x12\x18\n\x07message\x18\x05 \x01(\tR\x07message"N\n\x1aNodeWatchResourcesResponse\x120\n\x07devices\x18\x01 \x03(\x0b2\x16.v1alpha1.DeviceHealthR\x07devices*7\n\x0cHealthStatus\x12\x0b\n\x07UNKNOWN\x10\x00\x12\x0b\n\x07HEALTHY\x10\x01\x12\r\n\tUNHEALTHY\x10\x022v\n\x11DRAResourceHealth\x12a\n\x12NodeWatchResources\x12#.v1alpha1.NodeWatchResourcesRequest\x1a$.v1alpha1.NodeWatchResourcesResponse0\x01b\x06proto3'
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
