// Command hostpathplugin stands in for the image of the same name, in its proxy mode alone.
//
// The tests of dynamic resource allocation start it in a pod of their driver. Each connection that
// the kubelet makes to the Unix socket is joined with one that the tests make to the TCP port. The
// tests connect beforehand, so the port listens all the time.
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"sync"
)

func main() {
	endpoint := flag.String("endpoint", "", "path of the Unix socket")
	proxy := flag.String("proxy-endpoint", "", "tcp://HOST:PORT to listen on")
	flag.String("v", "", "accepted and ignored")
	flag.Parse()
	if err := os.Remove(*endpoint); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	kubelets := listen("unix", *endpoint)
	tests := listen("tcp", strings.TrimPrefix(*proxy, "tcp://"))
	for {
		fromKubelet, fromTests := accept(kubelets), accept(tests)
		go join(fromKubelet, fromTests)
	}
}

func listen(network, address string) net.Listener {
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func accept(listener net.Listener) net.Conn {
	connection, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

// join copies both ways; the end of either direction ends both connections.
func join(one, other net.Conn) {
	var once sync.Once
	end := func() { one.Close(); other.Close() }
	go func() { io.Copy(one, other); once.Do(end) }()
	io.Copy(other, one)
	once.Do(end)
}
