"""How a cluster is reached, and as whom: kubeconfigs, credentials and the plugins that print them."""
