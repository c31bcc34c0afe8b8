"""What runs in the browser: styles, scripts in the order of `html.SCRIPTS`, a template, and two small libraries."""
