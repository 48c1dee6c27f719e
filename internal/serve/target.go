package serve

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// misdirected says why the policies and the upstream could take r for two different requests; "" if they cannot. The target
// is a path, or a URL with a host and a path: of x:http://h/path a guard would see neither, and an upstream both.
func misdirected(r *http.Request) string {
	switch u := r.URL; {
	case u.Opaque != "", u.Path == "" && u.Host == "", u.Path != "" && u.Path[0] != '/':
		return "The request target is neither a path nor a URL with a host."
	case !validHost(r.Host):
		return "Host is no name and no address."
	}
	return ""
}

// validHost reports whether all read the same name in host: "" of old clients, a name that may end in a dot, or an address,
// and a port.
func validHost(host string) bool {
	if host == "" {
		return true
	}
	name, port := host, ""
	if host[0] == '[' || strings.IndexByte(host, ':') >= 0 {
		if host[len(host)-1] == ']' {
			host += ":"
		}
		var err error
		if name, port, err = net.SplitHostPort(host); err != nil {
			return false
		}
		if host[0] == '[' {
			addr, err := netip.ParseAddr(name)
			return err == nil && addr.Is6() && validPort(port)
		}
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return false
		}
	}
	return validPort(port)
}

func validPort(port string) bool {
	if port == "" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}
