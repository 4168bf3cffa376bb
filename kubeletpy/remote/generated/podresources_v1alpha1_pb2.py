"""pod resources v1alpha1 messages. Made by tools/gen_protos.py from podresources_v1alpha1.proto; do not edit."""

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    b'\n6kubeletpy/remote/generated/podresources_v1alpha1.proto\x12\x08v1alpha1"\x19\n\x17ListPodResourcesRequest"W\n\x18ListPodResourcesResponse\x12;\n\rpod_resources\x18\x01 \x03(\x0b2\x16.v1alpha1.PodResourcesR\x0cpodResources"~\n\x0cPodResources\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1c\n\tnamespace\x18\x02 \x01(\tR\tnamespace\x12<\n\ncontainers\x18\x03 \x03(\x0b2\x1c.v1alpha1.ContainerResourcesR\ncontainers"^\n\x12ContainerResources\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x124\n\x07devices\x18\x02 \x03(\x0b2\x1a.v1alpha1.ContainerDevicesR\x07devices"V\n\x10ContainerDevices\x12#\n\rresource_name\x18\x01 \x01(\tR\x0cresourceName\x12\x1d\n\ndevice_ids\x18\x02 \x03(\tR\tdeviceIds2c\n\x12PodResourcesLister\x12M\n\x04List\x12!.v1alpha1.ListPodResourcesRequest\x1a".v1alpha1.ListPodResourcesResponseb\x06proto3'
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
