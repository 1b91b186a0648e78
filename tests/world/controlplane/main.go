// Command controlplane is every program of a Kubernetes control plane in one
// binary; its first argument chooses which of them it becomes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	etcd "go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Several of these install the process's signal handler while they are being
// constructed, and the second one to do so panics: construct only what is named.
var programs = map[string]func() *cobra.Command{
	"etcd":                    newEtcdCommand,
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
	"service-account-key":     newKeyCommand,
}

func main() {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: controlplane PROGRAM ARGS..., with PROGRAM one of", slices.Sorted(maps.Keys(programs)))
		os.Exit(2)
	}
	exitWithStdin()
	name := os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...)
	os.Exit(cli.Run(programs[name]()))
}

// exitWithStdin ends the process when its standard input closes, so that a
// test which was killed leaves nothing behind. On only if EXIT_WITH_STDIN is
// set: kubectl reads manifests from there.
func exitWithStdin() {
	if os.Getenv("EXIT_WITH_STDIN") == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}

func newEtcdCommand() *cobra.Command {
	return &cobra.Command{
		Use:  "etcd CONFIG",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return runEtcd(args[0]) },
	}
}

func runEtcd(config string) error {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	cfg, err := etcd.ConfigFromFile(config)
	if err != nil {
		return err
	}
	server, err := etcd.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		return err
	case <-time.After(time.Minute):
		return errors.New("etcd was not ready within a minute")
	}
	select {
	case err := <-server.Err():
		return err
	case <-stop.Done():
		return nil
	}
}

// newKeyCommand prints a fresh key for the API server to sign service
// accounts' tokens with.
func newKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:  "service-account-key",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			key, err := keyutil.MakeEllipticPrivateKeyPEM()
			if err != nil {
				return err
			}
			_, err = os.Stdout.Write(key)
			return err
		},
	}
}
