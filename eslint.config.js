import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "dist-*", "coverage", "docs-out", "node_modules"] },
  {
    files: ["src/**/*.ts", "test/**/*.ts", "bench/**/*.ts"],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: {
      parserOptions: {
        project: ["./tsconfig.test.json", "./tsconfig.page.json"],
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      "@typescript-eslint/no-floating-promises": "error",
      "@typescript-eslint/switch-exhaustiveness-check": "error",
      "@typescript-eslint/only-throw-error": "off",
      "@typescript-eslint/prefer-promise-reject-errors": "off",
    },
  },
  {
    files: ["src/**/*.ts"],
    rules: {
      "max-lines": ["warn", 500],
      "max-params": ["error", 3],
      "no-console": "error",
    },
  },
);
