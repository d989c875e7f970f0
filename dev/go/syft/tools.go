//go:build tools

// Package tools names the program that this module pins.
package tools

import _ "github.com/anchore/syft/cmd/syft"
