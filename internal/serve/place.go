package serve

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// PasswordVariable is the environment variable that holds the password or key of a source: command lines can be read by
// others.
const PasswordVariable = "SPILLWAY_CONFIG_PASSWORD"

// Place is a location of the form SCHEME://[USER@]HOST[,HOST…][/PATH]#NAME. A scheme that ends in an s beyond its own name
// speaks TLS.
type Place struct {
	User, Name string
	Hosts      []string
	Path       []string
	TLS        bool
}

// ParsePlace reads a location of a source whose scheme is plain, or plain and an s. form is what an error says is wanted.
func ParsePlace(location, plain, form string) (Place, error) {
	u, err := url.Parse(location)
	if err != nil || u.Host == "" || u.Fragment == "" {
		return Place{}, fmt.Errorf("want %s", form)
	}
	if _, has := u.User.Password(); has {
		return Place{}, fmt.Errorf("command lines can be read by others: the password belongs into the variable %s", PasswordVariable)
	}
	p := Place{User: u.User.Username(), Name: u.Fragment, Hosts: strings.Split(u.Host, ","), TLS: u.Scheme != plain}
	if path := strings.Trim(u.Path, "/"); path != "" {
		p.Path = strings.Split(path, "/")
	}
	return p, nil
}

// TLSConfig returns the settings of TLS, nil without it.
func (p *Place) TLSConfig() *tls.Config {
	if !p.TLS {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}
}

// URLs are the hosts as URLs.
func (p *Place) URLs() (urls []string) {
	scheme := "http://"
	if p.TLS {
		scheme = "https://"
	}
	for _, host := range p.Hosts {
		urls = append(urls, scheme+host)
	}
	return urls
}

// Password is that of the environment.
func Password() string { return os.Getenv(PasswordVariable) }
