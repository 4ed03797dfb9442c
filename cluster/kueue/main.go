// Kueue's controllers, scheduler and webhooks, on one address of this machine, with certificates that it is given.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gates "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	settingsbeta1 "sigs.k8s.io/kueue/apis/config/v1beta1"
	settings "sigs.k8s.io/kueue/apis/config/v1beta2"
	alpha "sigs.k8s.io/kueue/apis/kueue/v1alpha1"
	beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	queuecache "sigs.k8s.io/kueue/pkg/cache/queue"
	admissioncache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/config"
	"sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	_ "sigs.k8s.io/kueue/pkg/controller/jobs"
	"sigs.k8s.io/kueue/pkg/controller/tas"
	tasindexer "sigs.k8s.io/kueue/pkg/controller/tas/indexer"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/util/kubeversion"
	"sigs.k8s.io/kueue/pkg/webhooks"
)

// Of the kinds of work that it can queue, those that are tried here. One whose API comes later is taken up then.
var frameworks = []string{"batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob"}

func main() {
	port := flag.Int("port", 0, "of the webhooks, and of /readyz")
	certificates := flag.String("certificates", "", "the folder that has kueue.crt and kueue.key")
	flag.Parse() // --kubeconfig is controller-runtime's own
	ctrl.SetLogger(zap.New())
	if err := run(*port, *certificates); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(port int, certificates string) error {
	// Other clusters and an API server of its own are not had here.
	if err := gates.DefaultMutableFeatureGate.SetFromMap(map[string]bool{"MultiKueue": false, "VisibilityOnDemand": false}); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	options, chosen, err := config.Load(scheme, "")
	if err != nil {
		return err
	}
	chosen.Integrations.Frameworks = frameworks
	connection, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	connection.QPS = -1 // no limit of its own
	server, err := serve(port, certificates)
	if err != nil {
		return err
	}
	options.WebhookServer = server
	options.Metrics = metrics.Options{BindAddress: "0"}
	options.HealthProbeBindAddress = "0"
	options.LeaderElection = false
	// How long it may take to end: a cluster that goes down does not wait.
	grace := time.Second
	options.GracefulShutdownTimeout = &grace
	manager, err := ctrl.NewManager(connection, options)
	if err != nil {
		return err
	}
	server.Register("/readyz", ready(manager))
	ctx := ctrl.SetupSignalHandler()
	if err := setUp(ctx, manager, &chosen); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	own := []func(*runtime.Scheme) error{
		kubernetes.AddToScheme, alpha.AddToScheme, beta1.AddToScheme, beta2.AddToScheme, settingsbeta1.AddToScheme, settings.AddToScheme,
	}
	for _, add := range own {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, jobframework.ForEachIntegration(func(_ string, kind jobframework.IntegrationCallbacks) error {
		if kind.AddToScheme == nil {
			return nil
		}
		return kind.AddToScheme(scheme)
	})
}

func setUp(ctx context.Context, manager ctrl.Manager, chosen *settings.Configuration) error {
	admitted := admissioncache.New(manager.GetClient())
	queues := queuecache.NewManager(manager.GetClient(), admitted)
	index := manager.GetFieldIndexer()
	kinds := jobframework.WithEnabledFrameworks(chosen.Integrations.Frameworks)
	for _, err := range []error{
		indexer.Setup(ctx, index), tasindexer.SetupIndexes(ctx, index), jobframework.SetupIndexes(ctx, index, kinds),
	} {
		if err != nil {
			return fmt.Errorf("indexes: %w", err)
		}
	}
	if failed, err := core.SetupControllers(manager, queues, admitted, chosen); err != nil {
		return fmt.Errorf("controller of %s: %w", failed, err)
	}
	if failed, err := tas.SetupControllers(manager, queues, admitted, chosen); err != nil {
		return fmt.Errorf("controller of %s: %w", failed, err)
	}
	if err := setUpKinds(ctx, manager, chosen, kinds, jobframework.WithCache(admitted), jobframework.WithQueues(queues)); err != nil {
		return err
	}
	if failed, err := webhooks.Setup(manager); err != nil {
		return fmt.Errorf("webhook of %s: %w", failed, err)
	}
	go queues.CleanUpOnContext(ctx)
	go admitted.CleanUpOnContext(ctx)
	return manager.Add(scheduler.New(queues, admitted, manager.GetClient(), manager.GetEventRecorderFor(constants.AdmissionName)))
}

func setUpKinds(ctx context.Context, manager ctrl.Manager, chosen *settings.Configuration, more ...jobframework.Option) error {
	client, err := discovery.NewDiscoveryClientForConfig(manager.GetConfig())
	if err != nil {
		return err
	}
	version := kubeversion.NewServerVersionFetcher(client)
	if err := version.FetchServerVersion(); err != nil {
		return err
	}
	namespaces, err := metav1.LabelSelectorAsSelector(chosen.ManagedJobsNamespaceSelector)
	if err != nil {
		return err
	}
	return jobframework.SetupControllers(ctx, manager, ctrl.Log, append(more,
		jobframework.WithManageJobsWithoutQueueName(chosen.ManageJobsWithoutQueueName),
		jobframework.WithManagedJobsNamespaceSelector(namespaces),
		jobframework.WithKubeServerVersion(version),
		jobframework.WithManagerName(constants.KueueName),
	)...)
}

// serve takes the certificate once: it does not change, and a watch on its file is one of the few that a user may have.
func serve(port int, certificates string) (webhook.Server, error) {
	file := filepath.Join(certificates, "kueue")
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
