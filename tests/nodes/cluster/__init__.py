"""Three virtual nodes of a real control plane, with kube-proxy: `./test.sh nodes --cluster`."""
