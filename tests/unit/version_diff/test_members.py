"""Members of proto files and Go types are read with their numbers and types."""

from __future__ import annotations

from tools.version_diff.members import go_members, proto_members

PROTO = """
service Runtime {
    rpc Version(Request) returns (Response) {}
    rpc Other(Request) returns (Response) {
    }
    rpc Third(Request) returns (Response);
}
message Request {
    // a comment = 9;
    string name = 1; // why
    repeated Mount mounts = 2;
    map<string, string> labels = 3;
    oneof kind {
        int64 one = 4;
    }
    bool last = 5;
}
message Empty {}
enum Signal {
    SIGNAL_NONE = 0;
    SIGNAL_TERM = 15;
}
"""
GO = """
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	// text
	Pods *int32 `json:"maxPods,omitempty"`
	Sysctls map[string]string `json:"sysctls"`
}
"""


def test_members_of_a_proto_file() -> None:
    assert proto_members(PROTO) == {
        "Runtime.Version": "rpc",
        "Runtime.Other": "rpc",
        "Runtime.Third": "rpc",
        "Request.name": "string = 1",
        "Request.mounts": "repeated Mount = 2",
        "Request.labels": "map<string, string> = 3",
        "Request.one": "int64 = 4",
        "Request.last": "bool = 5",
        "Signal.SIGNAL_NONE": "= 0",
        "Signal.SIGNAL_TERM": "= 15",
    }


def test_members_of_a_go_type() -> None:
    assert go_members(GO) == {
        "Configuration.maxPods": "*int32",
        "Configuration.sysctls": "map[string]string",
    }
