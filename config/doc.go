// Package config is the policy document: limits as YAML or JSON, checked as a whole, turned into the policies of a guard,
// and followed while it serves.
package config
