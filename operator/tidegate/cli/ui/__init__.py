"""``tidegate ui``: a page on this machine of what one's own kubeconfig may see; docs/adr/0054-a-page-by-the-cli.md."""
