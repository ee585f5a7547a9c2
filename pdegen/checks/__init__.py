"""Statistical checks that stored values follow the distribution that their recipe declares."""
