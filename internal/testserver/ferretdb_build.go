package testserver

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	rootModule   = "github.com/waybill-go/waybill"
	ferretModule = "github.com/FerretDB/FerretDB"
)

// buildFerret returns the path of the command of internal/ferretdb, built with the
// corrections. It is built once for each state of its sources, which takes a minute or
// two, and kept in the user's folder for caches. Processes that need it at once build it once.
func buildFerret(ctx context.Context) (path string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("build ferretdb: %w", err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	root, err := goTool(ctx, "", "list", "-m", "-f", "{{.Dir}}", rootModule)
	if err != nil {
		return "", err
	}
	module := filepath.Join(strings.TrimSpace(root), "internal", "ferretdb")
	sum, err := sumOf(module)
	if err != nil {
		return "", err
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(caches, "waybill-testserver")
	path = filepath.Join(folder, "ferretdb-"+sum)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	i := newInstaller()
	i.lock = filepath.Join(folder, "lock")
	unlock, err := i.takeLock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	slog.Info("testserver: building FerretDB", "path", path)
	return path, buildCorrected(ctx, module, folder, path)
}

// sumOf tells apart what a binary would be built from.
func sumOf(module string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintln(h, name, len(text), string(text)) // a hash takes everything
	}
	_, _ = fmt.Fprintf(h, "%s %s/%s %v", runtime.Version(), runtime.GOOS, runtime.GOARCH, corrections)
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// buildCorrected builds the command with a corrected copy of FerretDB: the module cache
// cannot be overlaid.
func buildCorrected(ctx context.Context, module, folder, path string) (err error) {
	tmp, err := os.MkdirTemp(folder, "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	out, err := goTool(ctx, module, "mod", "download", "-json", ferretModule+"@"+ferretVersion)
	if err != nil {
		return err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &downloaded); err != nil {
		return err
	}
	source := filepath.Join(tmp, "source")
	if err := copyFolder(downloaded.Dir, source); err != nil {
		return err
	}
	if err := apply(corrections, source); err != nil {
		return err
	}
	modFile := filepath.Join(tmp, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := copyFile(filepath.Join(module, name), filepath.Join(tmp, name)); err != nil {
			return err
		}
	}
	if _, err := goTool(ctx, module, "mod", "edit", "-replace="+ferretModule+"="+source, modFile); err != nil {
		return err
	}
	binary := filepath.Join(tmp, "ferretdb")
	if _, err := goTool(ctx, module, "build", "-modfile="+modFile, "-o", binary, "."); err != nil {
		return err
	}
	return os.Rename(binary, path)
}

// copyFolder copies files, so that they can be written to.
func copyFolder(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, relative), 0o700)
		}
		return copyFile(path, filepath.Join(to, relative))
	})
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// goTool runs the go command in a folder ("": that of the test), in module mode, whatever the
// user's settings are.
func goTool(ctx context.Context, dir string, args ...string) (stdout string, err error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", cmd, err, out, stderr.String())
	}
	return string(out), nil
}
