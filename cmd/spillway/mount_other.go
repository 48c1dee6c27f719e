//go:build !linux

package main

import "github.com/spillway-go/spillway/config"

func neverChanges(string) (config.Finding, bool) { return config.Finding{}, false }
