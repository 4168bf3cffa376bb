"""plugin registration v1 messages. Made by tools/gen_protos.py from pluginregistration.proto; do not edit."""

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    b'\n3kubeletpy/remote/generated/pluginregistration.proto\x12\x12pluginregistration"\x7f\n\nPluginInfo\x12\x12\n\x04type\x18\x01 \x01(\tR\x04type\x12\x12\n\x04name\x18\x02 \x01(\tR\x04name\x12\x1a\n\x08endpoint\x18\x03 \x01(\tR\x08endpoint\x12-\n\x12supported_versions\x18\x04 \x03(\tR\x11supportedVersions"W\n\x12RegistrationStatus\x12+\n\x11plugin_registered\x18\x01 \x01(\x08R\x10pluginRegistered\x12\x14\n\x05error\x18\x02 \x01(\tR\x05error"\x1c\n\x1aRegistrationStatusResponse"\r\n\x0bInfoRequest2\xce\x01\n\x0cRegistration\x12J\n\x07GetInfo\x12\x1f.pluginregistration.InfoRequest\x1a\x1e.pluginregistration.PluginInfo\x12r\n\x18NotifyRegistrationStatus\x12&.pluginregistration.RegistrationStatus\x1a..pluginregistration.RegistrationStatusResponseb\x06proto3'
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
