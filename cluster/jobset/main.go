// JobSet's controllers and webhooks, on one address of this machine, with certificates that it is given.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
	"sigs.k8s.io/jobset/pkg/webhooks"
)

func main() {
	port := flag.Int("port", 0, "of the webhooks, and of /readyz")
	certificates := flag.String("certificates", "", "the folder that has jobset.crt and jobset.key")
	flag.Parse() // --kubeconfig is controller-runtime's own
	ctrl.SetLogger(zap.New())
	if err := run(*port, *certificates); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(port int, certificates string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetes.AddToScheme, jobset.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1 // no limit of its own
	server, err := serve(port, certificates)
	if err != nil {
		return err
	}
	// How long it may take to end: a cluster that goes down does not wait.
	grace := time.Second
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		WebhookServer:           server,
		Metrics:                 metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		GracefulShutdownTimeout: &grace,
	})
	if err != nil {
		return err
	}
	server.Register("/readyz", ready(manager))
	ctx := ctrl.SetupSignalHandler()
	if err := controllers.SetupJobSetIndexes(ctx, manager.GetFieldIndexer()); err != nil {
		return err
	}
	if err := controllers.SetupPodIndexes(ctx, manager.GetFieldIndexer()); err != nil {
		return err
	}
	client, events := manager.GetClient(), manager.GetEventRecorderFor
	if err := controllers.NewJobSetReconciler(client, scheme, events("jobset")).SetupWithManager(manager); err != nil {
		return err
	}
	if err := controllers.NewPodReconciler(client, scheme, events("pod")).SetupWithManager(manager); err != nil {
		return err
	}
	jobSets, err := webhooks.NewJobSetWebhook(client)
	if err != nil {
		return err
	}
	if err := jobSets.SetupWebhookWithManager(manager); err != nil {
		return err
	}
	if err := webhooks.NewPodWebhook(client).SetupWebhookWithManager(manager); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// serve takes the certificate once: it does not change, and a watch on its file is one of the few that a user may have.
func serve(port int, certificates string) (webhook.Server, error) {
	file := filepath.Join(certificates, "jobset")
	pair, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	if err != nil {
		return nil, err
	}
	give := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
	return webhook.NewServer(webhook.Options{
		Host: "127.0.0.1", Port: port, TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.GetCertificate = give }},
	}), nil
}

// ready says so when the caches are full and the controllers work, not already when it listens.
func ready(manager ctrl.Manager) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		select {
		case <-manager.Elected():
			fmt.Fprintln(answer, "ok")
		default:
			http.Error(answer, "not yet", http.StatusServiceUnavailable)
		}
	})
}
