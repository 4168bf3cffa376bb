"""pods v1alpha1 messages. Made by tools/gen_protos.py from pods.proto; do not edit."""

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(
    b'\n%kubeletpy/remote/generated/pods.proto\x12\x08v1alpha1"K\n\x0eWatchPodsEvent\x12\'\n\x04type\x18\x01 \x01(\x0e2\x13.v1alpha1.EventTypeR\x04type\x12\x10\n\x03pod\x18\x02 \x01(\x0cR\x03pod"&\n\x10ListPodsResponse\x12\x12\n\x04pods\x18\x01 \x03(\x0cR\x04pods""\n\x0eGetPodResponse\x12\x10\n\x03pod\x18\x01 \x01(\x0cR\x03pod"\x12\n\x10WatchPodsRequest"\x11\n\x0fListPodsRequest"\'\n\rGetPodRequest\x12\x16\n\x06podUID\x18\x01 \x01(\tR\x06podUID*]\n\tEventType\x12\x0f\n\x0bUNSPECIFIED\x10\x00\x12\t\n\x05ADDED\x10\x01\x12\x0c\n\x08MODIFIED\x10\x02\x12\x0b\n\x07DELETED\x10\x03\x12\x19\n\x15INITIAL_SYNC_COMPLETE\x10\x042\xcb\x01\n\x04Pods\x12C\n\tWatchPods\x12\x1a.v1alpha1.WatchPodsRequest\x1a\x18.v1alpha1.WatchPodsEvent0\x01\x12A\n\x08ListPods\x12\x19.v1alpha1.ListPodsRequest\x1a\x1a.v1alpha1.ListPodsResponse\x12;\n\x06GetPod\x12\x17.v1alpha1.GetPodRequest\x1a\x18.v1alpha1.GetPodResponseb\x06proto3'
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
